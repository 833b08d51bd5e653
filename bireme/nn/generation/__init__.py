"""Text generation with ordinary models: a static cache, and loops that stay on the device."""

from bireme.nn.generation.attention import causal_attention
from bireme.nn.generation.beam_search import beam_search
from bireme.nn.generation.cache import KVCache
from bireme.nn.generation.generate import generate, stream
from bireme.nn.generation.paged import PagedCache
from bireme.nn.generation.prompt_cache import PromptCache

__all__ = [
    "KVCache",
    "PagedCache",
    "PromptCache",
    "beam_search",
    "causal_attention",
    "generate",
    "stream",
]
