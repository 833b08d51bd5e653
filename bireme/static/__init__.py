"""Static graphs."""

from bireme.static.input_spec import InputSpec

__all__ = ["InputSpec"]
