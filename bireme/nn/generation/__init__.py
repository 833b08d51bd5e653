"""Text generation with ordinary models: a static cache, and loops that stay on the device."""

from bireme.nn.generation.attention import causal_attention
from bireme.nn.generation.beam_search import beam_search
from bireme.nn.generation.cache import KVCache
from bireme.nn.generation.generate import generate, stream
from bireme.nn.generation.paged import PagedCache

__all__ = ["KVCache", "PagedCache", "beam_search", "causal_attention", "generate", "stream"]
