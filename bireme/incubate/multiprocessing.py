"""paddle.incubate.multiprocessing: the standard module; tensors travel by value."""

from multiprocessing import *  # noqa: F403
