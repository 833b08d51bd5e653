"""Names of Paddle that Bireme lacks and that programs import long before they use them, if ever.

Model code imports the layers of tensor parallelism and pipelines at the top of its files and uses
them when told to train on many machines. If the import failed, the models could not be used at
all. So these names, and only these, can be imported; the first use raises and says what is missing.
Each of them is imported at the top of a file of paddlenlp 2.8.1, paddlex 3.7, paddledet 2.6,
paddleformers 1.2, ppdiffusers 0.29, paddlespeech 1.5 or paddleslim 2.6. Every other missing name
fails where it is asked for, as feature tests (`hasattr`, `except ImportError`) expect.
"""

from __future__ import annotations

from typing import Any

_FLEET = "paddle.distributed.fleet"
_OPTIMIZERS = f"{_FLEET}.meta_optimizers.dygraph_optimizer"
_ADVICE = "one process drives all its devices: see paddle.distributed.shard_tensor"
_KERNELS = "kernels compiled for Paddle do not load: write the op with public functions"

_PIPELINE = "cut layers with paddle.distributed.fleet.meta_parallel.PipelineLayer"
_RECOMPUTE = "see paddle.distributed.fleet.utils.recompute"
_CHECKPOINT = "see paddle.distributed.save_state_dict and load_state_dict"
_QUANTIZE = "quantise layers with paddle.quantization.QAT and PTQ"
_PASSES = "rewrite graphs with bireme.passes"
_MODE = "parameters are made where they are first used"
_FLEET_CHECKPOINT = "paddle.distributed.flex_checkpoint"

LATER: dict[str, tuple[str, str]] = {
    f"{_FLEET}.meta_parallel": (
        "LayerSpec LocalSharedLayerDesc NoPipelineParallel PipelineDatasetPreprocessor "
        "ScheduleChunk ScheduleNode build_spec_layer",
        _PIPELINE,
    ),
    _OPTIMIZERS: ("DygraphShardingOptimizer HybridParallelOptimizer", _ADVICE),
    f"{_OPTIMIZERS}.dygraph_sharding_optimizer": (
        "DygraphShardingOptimizer DygraphShardingOptimizerV2",
        _ADVICE,
    ),
    f"{_OPTIMIZERS}.hybrid_parallel_optimizer": ("HybridParallelOptimizer", _ADVICE),
    f"{_FLEET}.meta_parallel.sharding.group_sharded_optimizer_stage2": (
        "GroupShardedOptimizerStage2",
        _ADVICE,
    ),
    "paddle.distributed.communication.reduce": ("_get_reduce_op", _ADVICE),
    "paddle.incubate.tensor.manipulation": (
        "async_offload async_offload_with_offset create_async_load",
        "memory is not moved by hand: see paddle.distributed.fleet.utils.recompute",
    ),
    "paddle.io.dataloader.dataloader_iter": (
        "_DataLoaderIterBase",
        "what iter(loader) gives has no class to subclass: wrap it",
    ),
    "paddle.utils.cpp_extension": ("load_op_meta_info_and_register_op", _KERNELS),
    "paddle.utils.cpp_extension.cpp_extension": ("BuildExtension", _KERNELS),
    "paddle.utils.cpp_extension.extension_utils": (
        "_import_module_from_library _jit_compile load_op_meta_info_and_register_op",
        _KERNELS,
    ),
    "paddle.base.dygraph.base": ("param_guard", _MODE),
    "paddle.base.framework": (
        "_create_tensor",
        "make tensors with paddle.to_tensor or paddle.empty",
    ),
    "paddle.distributed.auto_parallel._utils": ("_patch_grads_for_step", _ADVICE),
    "paddle.distributed.auto_parallel.interface": ("recompute", _RECOMPUTE),
    "paddle.distributed.auto_parallel.ring_attention": ("shard_seq_load_balance", _ADVICE),
    "paddle.distributed.communication.batch_isend_irecv": ("_coalescing_manager", _ADVICE),
    f"{_FLEET}.meta_parallel.sharding.group_sharded_utils": ("GroupShardedScaler", _ADVICE),
    f"{_FLEET}.meta_parallel.zero_bubble_utils": ("EventStore WeightGradStore", _PIPELINE),
    f"{_FLEET}.recompute.recompute": (
        "check_recompute_necessary switch_rng_state_tracker",
        _RECOMPUTE,
    ),
    f"{_FLEET}.utils.mix_precision_utils": (
        "MixPrecisionScaler",
        "keep float32 copies of weights with paddle.amp.decorate(..., master_weight=True)",
    ),
    f"{_FLEET_CHECKPOINT}.aoa.lexer": ("Lexer TokenType", _CHECKPOINT),
    f"{_FLEET_CHECKPOINT}.aoa.macros": (
        "extract_axis_and_clean_tokens macro_registry",
        _CHECKPOINT,
    ),
    f"{_FLEET_CHECKPOINT}.dcp.full_param": ("full_param", _CHECKPOINT),
    f"{_FLEET_CHECKPOINT}.dcp.load_state_dict": (
        "_load_state_dict get_rank_to_read_files",
        _CHECKPOINT,
    ),
    f"{_FLEET_CHECKPOINT}.dcp.metadata": (
        "LocalTensorIndex LocalTensorMetadata Metadata",
        _CHECKPOINT,
    ),
    f"{_FLEET_CHECKPOINT}.dcp.save_state_dict": ("dedup_key_in_dict", _CHECKPOINT),
    f"{_FLEET_CHECKPOINT}.dcp.sharded_weight": (
        "create_sharded_weight_with_new_local make_replicated_sharded_weight",
        _CHECKPOINT,
    ),
    f"{_FLEET_CHECKPOINT}.dcp.utils": (
        "flatten_state_dict merge_state_dict_metadata",
        _CHECKPOINT,
    ),
    "paddle.distributed.parallel": ("sync_params_buffers", _ADVICE),
    "paddle.distributed.utils.process_utils": (
        "SUCCESS_CODE set_affinity",
        "bind processes to cores with numactl or taskset",
    ),
    "paddle.framework": ("IrGraph", _PASSES),
    "paddle.framework.io": (
        "_parse_every_object _to_LodTensor _transformed_from_lodtensor",
        "paddle.load(..., return_numpy=True) gives arrays",
    ),
    "paddle.framework.recall_error": (
        "AADIFF_ERROR LOSS_INF_ERROR LOSS_NAN_ERROR",
        "they are messages for a scheduler of Paddle's",
    ),
    "paddle.distributed": ("enable_auto_dp in_auto_parallel_align_mode", _ADVICE),
    "paddle.incubate.jit": ("inference is_inference_mode", "paddle.jit.to_static compiles"),
    "paddle.incubate.nn.memory_efficient_attention": (
        "BlockDiagonalCausalMask memory_efficient_attention",
        "paddle.nn.functional.scaled_dot_product_attention saves the memory",
    ),
    "paddle.io.reader": ("use_pinned_memory", "copies to devices need no pinned pages"),
    "paddle.jit.layer": ("Layer", "paddle.jit.load gives a layer"),
    "paddle.nn.initializer.lazy_init": ("lazy_init_helper", _MODE),
    "paddle.nn.quant.quantized_linear": ("_get_arch_info", _KERNELS),
    "paddle.optimizer.fusion_utils": ("FusionStorageHelper _share_tensor_ipc_meta", _CHECKPOINT),
    "paddle.quantization": (
        "AbsmaxQuantizer HistQuantizer ImperativePTQ ImperativeQuantAware KLQuantizer PTQConfig "
        "PerChannelAbsmaxQuantizer SUPPORT_ACT_QUANTIZERS SUPPORT_WT_QUANTIZERS",
        _QUANTIZE,
    ),
    "paddle.static.quantization": (
        "AddQuantDequantForInferencePass AddQuantDequantPass AddQuantDequantPassV2 "
        "ConvertToInt8Pass OutScaleForInferencePass OutScaleForTrainingPass "
        "PostTrainingQuantization PostTrainingQuantizationProgram QuantWeightPass "
        "QuantizationFreezePass QuantizationTransformPass QuantizationTransformPassV2 "
        "WeightQuantization quant_config",
        _QUANTIZE,
    ),
    "paddle.static.quantization.utils": ("load_variable_data", _QUANTIZE),
}


def has_module(module: str) -> bool:
    """Whether names that may be imported are in `module` or below it."""
    return any(f"{m}.".startswith(f"{module}.") for m in LATER)


def advice(module: str, name: str) -> str | None:
    """What to do without a name that may be imported; None for any other name."""
    names, hint = LATER.get(module, ("", ""))
    return hint if name in names.split() else None


def stand_in(full_name: str, error: Exception, doc: str) -> type:
    """A class that raises when it, or a subclass, is called or made."""

    def refuse(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise error

    module, _, name = full_name.rpartition(".")
    return type(name, (), {"__new__": refuse, "__module__": module, "__doc__": doc})
