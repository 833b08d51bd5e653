"""paddle.distributed.passes: changes of static programs, by name."""

from bireme.distributed.passes import graph_passes as _  # noqa: F401 (registers them)
from bireme.distributed.passes.pass_base import PassContext, PassManager, new_pass

__all__ = ["PassContext", "PassManager", "new_pass"]
