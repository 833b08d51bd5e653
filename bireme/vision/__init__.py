"""Images: transforms, datasets read from local files, and classic networks."""

from bireme.vision import datasets, models, transforms

__all__ = ["datasets", "models", "transforms"]
