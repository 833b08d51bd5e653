"""Names of Paddle that Bireme lacks and that programs import long before they use them, if ever.

Model code imports the layers of tensor parallelism and pipelines at the top of its files and uses
them when told to train on many machines. If the import failed, the models could not be used at
all. So these names, and only these, can be imported; the first use raises and says what is missing.
Every other missing name fails where it is asked for, as feature tests (`hasattr`, `except
ImportError`) expect.
"""

from __future__ import annotations

from typing import Any

_FLEET = "paddle.distributed.fleet"
_MPU = "ColumnParallelLinear ParallelCrossEntropy RowParallelLinear VocabParallelEmbedding"
_PIPES = "LayerDesc PipelineLayer SharedLayerDesc"
_OPTIMIZERS = "DygraphShardingOptimizer HybridParallelGradScaler HybridParallelOptimizer"
_ADVICE = "one process drives all its devices: see paddle.distributed.shard_tensor"
_KERNELS = "kernels compiled for Paddle do not load: write the op with public functions"

LATER: dict[str, tuple[str, str]] = {
    _FLEET: (
        "DistributedStrategy distributed_model distributed_optimizer distributed_scaler fleet "
        "get_hybrid_communicate_group init",
        _ADVICE,
    ),
    f"{_FLEET}.meta_parallel": (
        f"{_MPU} {_PIPES} LocalSharedLayerDesc PipelineParallel TensorParallel "
        "get_rng_state_tracker",
        _ADVICE,
    ),
    f"{_FLEET}.meta_parallel.parallel_layers": (_PIPES, _ADVICE),
    f"{_FLEET}.layers.mpu.mp_layers": (_MPU, _ADVICE),
    f"{_FLEET}.layers.mpu.mp_ops": (
        "_c_concat _c_identity _c_softmax_with_cross_entropy _c_split _mp_allreduce",
        _ADVICE,
    ),
    f"{_FLEET}.layers.mpu": ("mp_ops", _ADVICE),
    f"{_FLEET}.meta_optimizers.dygraph_optimizer": (_OPTIMIZERS, _ADVICE),
    f"{_FLEET}.meta_optimizers.dygraph_optimizer.dygraph_sharding_optimizer": (
        "DygraphShardingOptimizer DygraphShardingOptimizerV2",
        _ADVICE,
    ),
    f"{_FLEET}.meta_optimizers.dygraph_optimizer.hybrid_parallel_optimizer": (
        "HybridParallelOptimizer",
        _ADVICE,
    ),
    f"{_FLEET}.meta_parallel.sharding.group_sharded_optimizer_stage2": (
        "GroupShardedOptimizerStage2",
        _ADVICE,
    ),
    f"{_FLEET}.base.topology": ("HybridCommunicateGroup", _ADVICE),
    f"{_FLEET}.model": ("PipelineParallel", _ADVICE),
    f"{_FLEET}.utils.hybrid_parallel_util": (
        "fused_allreduce_gradients obtain_optimizer_parameters_list",
        _ADVICE,
    ),
    f"{_FLEET}.utils.sequence_parallel_utils": (
        "AllGatherOp ColumnSequenceParallelLinear GatherOp ReduceScatterOp "
        "RowSequenceParallelLinear ScatterOp all_gather is_sequence_parallel_parameter "
        "mark_as_sequence_parallel_parameter reduce_scatter "
        "register_sequence_parallel_allreduce_hooks scatter",
        _ADVICE,
    ),
    "paddle.distributed.communication.group": ("_get_global_group", _ADVICE),
    "paddle.distributed.communication.reduce": ("_get_reduce_op", _ADVICE),
    "paddle.incubate.tensor.manipulation": (
        "async_offload async_reload create_async_load",
        "memory is not moved by hand: see paddle.distributed.fleet.utils.recompute",
    ),
    "paddle.io.dataloader.dataloader_iter": (
        "_DataLoaderIterBase",
        "what iter(loader) gives has no class to subclass: wrap it",
    ),
    "paddle.utils.cpp_extension": ("load_op_meta_info_and_register_op", _KERNELS),
    "paddle.utils.cpp_extension.cpp_extension": ("BuildExtension CppExtension", _KERNELS),
    "paddle.utils.cpp_extension.extension_utils": (
        "_import_module_from_library _jit_compile load_op_meta_info_and_register_op",
        _KERNELS,
    ),
}

# Inner files of Paddle's packages: here, as there, the package has their public names.
INNER = {
    "tensor": "attribute creation linalg logic manipulation math ops random search stat",
    "nn.functional": "activation common conv distance extension input loss norm pooling "
    "sparse_attention transformer vision",
    "nn.initializer": "assign bilinear constant dirac initializer kaiming normal orthogonal "
    "uniform xavier",
    "nn.utils": "spectral_norm_hook transform_parameters weight_norm_hook",
    "nn.quant": "functional_layers quantized_linear",
    "optimizer": "adadelta adagrad adamax adamw asgd lamb momentum nadam radam rmsprop rprop",
    "metric": "metrics",
    "io": "reader",
    "distribution": "bernoulli beta binomial categorical cauchy chi2 continuous_bernoulli "
    "dirichlet exponential gamma geometric gumbel independent laplace lkj_cholesky lognormal "
    "multinomial multivariate_normal normal poisson student_t uniform",
    "sparse": "binary creation multiary unary",
    "sparse.nn.functional": "pooling transformer",
    "geometric": "math reindex sampling",
    "geometric.message_passing": "send_recv",
    "geometric.sampling": "neighbors",
    "vision.datasets": "flowers voc2012",
    "vision.models": "inceptionv3 mobilenetv1 mobilenetv2 mobilenetv3 shufflenetv2",
    "audio.backends": "backend init_backend wave_backend",
    "audio.datasets": "dataset esc50 tess",
    "audio.features": "layers",
    "audio.functional": "functional window",
    "text.datasets": "imdb imikolov movielens uci_housing wmt14 wmt16",
    "static": "input io",
    "jit": "api",
    "autograd": "backward_mode",
}
# Packages of Paddle that are not packages here, and where their names are.
_PACKAGES = {
    "geometric.message_passing": "geometric", "geometric.sampling": "geometric",
    "text.datasets": "text",
}  # fmt: skip

# Modules of Paddle whose names live in another module here.
MOVED = {
    "paddle.distributed.communication.reduce": "bireme.distributed.communication",
    "paddle.nn.layer.distance": "bireme.nn",
    "paddle.cuda": "bireme.device",
    "paddle.io.dataloader.collate": "bireme.io.collate",
    **{f"paddle.io.dataloader.{file}": "bireme.io"
       for file in ("batch_sampler", "dataset", "sampler", "worker")},
    **{f"paddle.{package}.{file}": f"bireme.{_PACKAGES.get(package, package)}"
       for package, files in INNER.items() for file in files.split()},
}  # fmt: skip

# Settings in such modules that programs look at when they are imported.
VALUES = {"paddle.utils.cpp_extension.cpp_extension": {"CUDA_HOME": None}}


def has_module(name: str) -> bool:
    """Whether a module that Bireme lacks can be imported for the names in it."""
    return any(f"{known}.".startswith(f"{name}.") for known in LATER)


def advice(module: str, name: str) -> str | None:
    """What to do without a name that may be imported; None for any other name."""
    names, hint = LATER.get(module, ("", ""))
    return hint if name in names.split() else None


def stand_in(full_name: str, error: Exception) -> type:
    """A class that raises when it, or a subclass, is called or made."""

    def refuse(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise error

    module, _, name = full_name.rpartition(".")
    return type(name, (), {"__new__": refuse, "__module__": module, "__doc__": str(error)})
