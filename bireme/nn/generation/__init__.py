"""Text generation with ordinary models: a static cache, and loops that stay on the device."""

from bireme.nn.generation.cache import KVCache
from bireme.nn.generation.generate import generate, stream

__all__ = ["KVCache", "generate", "stream"]
