"""paddle.nn.decode: beam search's older address."""

from bireme.nn.layer.decode import BeamSearchDecoder, dynamic_decode

__all__ = ["BeamSearchDecoder", "dynamic_decode"]
