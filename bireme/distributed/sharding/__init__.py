"""paddle.distributed.sharding: models whose training state is cut over devices."""

from bireme.distributed.sharding.group_sharded import (
    group_sharded_parallel,
    save_group_sharded_model,
)

__all__ = ["group_sharded_parallel", "save_group_sharded_model"]
