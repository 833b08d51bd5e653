"""One small function per Paddle op that runs it on our ops."""

from importlib import import_module

for _family in ("activation", "math", "shape", "nn", "recurrent", "sequence", "control"):
    import_module(f"bireme.convert.paddle.rules.{_family}")
