"""paddle.distributed.fsdp: parameters in parts, gathered where they are used."""

from bireme.distributed.fsdp.fully_shard import fully_shard

__all__ = ["fully_shard"]
