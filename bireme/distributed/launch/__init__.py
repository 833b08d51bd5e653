"""`python -m bireme.distributed.launch`: start a program as several processes."""

from bireme.distributed.launch.main import launch

__all__ = ["launch"]
