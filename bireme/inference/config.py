"""Settings of a predictor: the model, the engine, the device and the passes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

from bireme import passes
from bireme.core import place as places
from bireme.core.errors import BiremeError, InvalidArgument
from bireme.inference.kinds import PrecisionType

ENGINES = ("xla", "lite", "onnxruntime", "openvino", "auto")

# Paddle's passes that one of ours does the work of. Deleting any other changes nothing here, as
# it changes nothing in a Paddle whose pass list does not hold it.
_PASS_NAMES = {
    "conv_bn_fuse_pass": "fold_affine", "conv_eltwiseadd_bn_fuse_pass": "fold_affine",
    "conv_affine_channel_fuse_pass": "fold_affine", "conv2d_bn_fuse_pass": "fold_affine",
    "constant_folding_pass": "fold_constants",
    "common_subexpression_elimination_pass": "share_common",
    "dead_code_elimination_pass": "dead_code",
    "fc_bn_fuse_pass": "fold_affine", "matmul_scale_fuse_pass": "fold_affine",
    "matmul_transpose_fuse_pass": "layout", "transpose_flatten_concat_fuse_pass": "layout",
    "identity_op_clean_pass": "layout", "layer_norm_fuse_pass": "fuse_norms",
    "rms_norm_fuse_pass": "fuse_norms", "fused_multi_head_attention_pass": "fuse_attention",
    "multihead_matmul_fuse_pass_v2": "fuse_attention", "silu_fuse_pass": "fuse_activations",
    "gelu_tanh_fuse_pass": "fuse_activations",
}  # fmt: skip
_OTHER_VENDORS = {
    "tensorrt": "TensorRT; on NVIDIA GPUs use enable_use_gpu, XLA compiles the whole net",
    "trt": "TensorRT; on NVIDIA GPUs use enable_use_gpu, XLA compiles the whole net",
    "xpu": "Kunlun XPUs; a chip with a PJRT plug-in is used by enable_custom_device",
    "ipu": "Graphcore IPUs; a chip with a PJRT plug-in is used by enable_custom_device",
    "dlnne": "DL-NNE",
    "lite": "Paddle Lite",
    "int8": "oneDNN's int8 kernels",
    "cutlass": "CUTLASS kernels, which XLA chooses for itself",
}


# Passes that make what only the engine 'xla' can run: it applies them itself.
ENGINE_PASSES = ("fuse_squeeze", "split_transposed", "fuse_products")


class PassBuilder:
    """The list of passes over the graph; see `bireme.passes`."""

    def __init__(self) -> None:
        self._names = [*passes.enabled(), *ENGINE_PASSES]

    def all_passes(self) -> list[str]:
        """Names in the order in which they run."""
        return list(self._names)

    def append_pass(self, pass_type: str) -> None:
        """Run this pass last."""
        self.insert_pass(len(self._names), pass_type)

    def insert_pass(self, idx: int, pass_type: str) -> None:
        """Run this pass as number `idx`."""
        if pass_type not in passes.names():
            raise InvalidArgument(
                f"no pass named {pass_type!r}. There are: {', '.join(passes.names())}"
            )
        self._names.insert(idx, pass_type)

    def delete_pass(self, pass_type: str) -> None:
        """Leave this pass out; Paddle's names for the same work do too."""
        pass_type = _PASS_NAMES.get(pass_type, pass_type)
        self._names = [n for n in self._names if n != pass_type]


class Config:
    """A model's files and how to run it.

    Config("model_dir")                       # a folder
    Config("m.pdmodel", "m.pdiparams")        # Paddle 2
    Config("m.json", "m.pdiparams")           # Paddle 3
    Config("m")                               # what paddle.jit.save(layer, "m") wrote
    """

    Precision = PrecisionType
    Float32 = PrecisionType.Float32
    Int8 = PrecisionType.Int8
    Half = PrecisionType.Half
    Bfloat16 = PrecisionType.Bfloat16

    def __init__(self, *model: str):
        self._dir = self._program = self._params = ""
        self._buffers: tuple[bytes, bytes] | None = None
        self._place: places.Place = places.CPUPlace()
        self._memory_pool_mb = 0
        self._precision = PrecisionType.Float32
        self._threads = 1
        self._threads_chosen = False
        self._engine = "xla"
        self._cpu_kernels = True
        self._passes = PassBuilder()
        self._optimize = True
        self._level = 2
        self._debug = False
        self._cache_dir = ""
        self._save_optimized = False
        self._use_optimized = False
        self._profile = False
        self._quiet = False
        self._max_programs = 16
        self._shapes_file = ""
        self._warm_up: list[dict[str, Sequence[int]]] = []
        self._memory_optim = True
        self._wide_ops: frozenset[str] = frozenset()
        self._low_ops: frozenset[str] = frozenset()
        self._low_io = False
        self._flags = {"feed_fetch": False, "specify_names": True}
        if model:
            self.set_model(*model)

    def __getattr__(self, name: str) -> Any:
        for word, what in _OTHER_VENDORS.items():
            if word in name.split("_") or f"_{word}_" in f"_{name}_":
                raise AttributeError(f"Config.{name} is for {what}. It is not part of Bireme")
        raise AttributeError(f"Config has no switch {name!r}")

    # --- the model ------------------------------------------------------------------------

    def set_model(self, *model: str) -> None:
        """A folder or path, or the program's file and the weights' file."""
        if not 1 <= len(model) <= 2:
            raise InvalidArgument(f"a model is one path or two. Received: {len(model)}")
        paths = [os.fspath(m) for m in model]
        self._buffers = None
        if len(paths) == 1:
            self._dir, self._program, self._params = paths[0], "", ""
        else:
            self._dir, (self._program, self._params) = "", paths

    def set_prog_file(self, path: str) -> None:
        """The file of the program."""
        self._program, self._dir = os.fspath(path), ""

    def set_params_file(self, path: str) -> None:
        """The file of the weights."""
        self._params = os.fspath(path)

    def set_model_buffer(
        self,
        prog_buffer: bytes,
        prog_buffer_size: int,
        params_buffer: bytes,
        params_buffer_size: int,
    ) -> None:
        """The contents of a Paddle program's and its weights' files."""
        self._buffers = (
            bytes(prog_buffer)[:prog_buffer_size],
            bytes(params_buffer)[:params_buffer_size],
        )

    def model_from_memory(self) -> bool:
        return self._buffers is not None

    def model_dir(self) -> str:
        return self._dir

    def prog_file(self) -> str:
        return self._program

    def params_file(self) -> str:
        return self._params

    # --- where it runs --------------------------------------------------------------------

    def enable_use_gpu(
        self,
        memory_pool_init_size_mb: int,
        device_id: int = 0,
        precision_mode: PrecisionType = PrecisionType.Float32,
    ) -> None:
        """Run on this GPU. Where there is none a warning says so and the CPU is used."""
        wanted = places.CUDAPlace(device_id)
        try:
            wanted.check()
        except (BiremeError, RuntimeError) as e:
            warnings.warn(f"the model runs on the CPU: {e}", stacklevel=2)
            return
        self._memory_pool_mb = memory_pool_init_size_mb
        self._set_precision(precision_mode)
        self._place = wanted

    def enable_custom_device(
        self,
        device_type: str,
        device_id: int = 0,
        precision: PrecisionType = PrecisionType.Float32,
    ) -> None:
        """Run on a chip that a backend or a PJRT plug-in of this name serves."""
        wanted = places.CustomPlace(device_type, device_id)
        wanted.check()
        self._set_precision(precision)
        self._place = wanted

    def disable_gpu(self) -> None:
        self._place = places.CPUPlace()

    def use_gpu(self) -> bool:
        return isinstance(self._place, places.CUDAPlace)

    def use_xpu(self) -> bool:
        return False

    def gpu_device_id(self) -> int:
        return self._place.index if self.use_gpu() else 0

    def memory_pool_init_size_mb(self) -> int:
        return self._memory_pool_mb

    def fraction_of_gpu_memory_for_pool(self) -> float:
        """The share of a GPU's memory that XLA's allocator takes at the start."""
        if not self.use_gpu():
            return 0.0
        if os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "true").lower() in ("false", "0"):
            return 0.0
        return float(os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.75"))

    def set_cpu_math_library_num_threads(self, cpu_math_library_num_threads: int) -> None:
        """Threads that compute on the CPU. XLA's are the process's: the first predictor that
        names a number, before anything was compiled, decides."""
        if cpu_math_library_num_threads < 1:
            raise InvalidArgument(
                f"at least one thread is needed. Received: {cpu_math_library_num_threads}"
            )
        self._threads = int(cpu_math_library_num_threads)
        self._threads_chosen = True

    def cpu_math_library_num_threads(self) -> int:
        return self._threads

    # --- what runs it ---------------------------------------------------------------------

    def set_engine(self, engine: str) -> None:
        """'xla', 'lite', 'onnxruntime', 'openvino', or 'auto': measure all, keep the fastest."""
        if engine not in ENGINES:
            raise InvalidArgument(f"an engine is one of {', '.join(ENGINES)}. Received: {engine!r}")
        self._engine = engine

    def engine(self) -> str:
        return self._engine

    def enable_onnxruntime(self) -> None:
        self._engine = "onnxruntime"

    def disable_onnxruntime(self) -> None:
        if self._engine == "onnxruntime":
            self._engine = "xla"

    def onnxruntime_enabled(self) -> bool:
        return self._engine == "onnxruntime"

    def enable_ort_optimization(self) -> None:
        """Nothing to do, as in Paddle: onnxruntime uses all its graph optimizations anyway."""

    def enable_openvino_engine(
        self, inference_precision: PrecisionType = PrecisionType.Float32
    ) -> None:
        self._set_precision(inference_precision)
        self._engine = "openvino"

    def openvino_engine_enabled(self) -> bool:
        return self._engine == "openvino"

    def tensorrt_engine_enabled(self) -> bool:
        """False, as below: XLA compiles the whole net, and no part of it runs in TensorRT."""
        return False

    tensorrt_dla_enabled = tensorrt_engine_enabled
    tensorrt_dynamic_shape_enabled = tensorrt_engine_enabled
    tensorrt_explicit_quantization_enabled = tensorrt_engine_enabled
    tensorrt_varseqlen_enabled = tensorrt_engine_enabled
    trt_allow_build_at_runtime = tensorrt_engine_enabled
    tuned_tensorrt_dynamic_shape = tensorrt_engine_enabled

    def enable_mkldnn(self) -> None:
        """Use the hand-written CPU kernels (they are on at first)."""
        self._cpu_kernels = True

    enable_onednn = enable_mkldnn

    def disable_mkldnn(self) -> None:
        """Use XLA's own CPU kernels only."""
        self._cpu_kernels = False

    disable_onednn = disable_mkldnn

    def enable_mkldnn_bfloat16(self) -> None:
        """Compute in bfloat16; softmax, norms and sums stay in float32."""
        self._set_precision(PrecisionType.Bfloat16)

    enable_onednn_bfloat16 = enable_mkldnn_bfloat16

    def mkldnn_enabled(self) -> bool:
        return self._cpu_kernels

    onednn_enabled = mkldnn_enabled

    def mkldnn_int8_enabled(self) -> bool:
        """False: int8 comes with the model, from `paddle.quantization`."""
        return False

    onednn_int8_enabled = mkldnn_int8_enabled

    def set_mkldnn_cache_capacity(self, capacity: int = 0) -> None:
        """How many input shapes stay compiled; 0 stands for the default, 16."""
        if capacity < 0:
            raise InvalidArgument(f"a capacity is not negative. Received: {capacity}")
        self._max_programs = capacity or 16

    set_onednn_cache_capacity = set_mkldnn_cache_capacity

    def enable_cinn(self) -> None:
        """Compile the graph: what the xla engine always does."""
        self._engine = "xla"

    # --- the graph ------------------------------------------------------------------------

    def switch_ir_optim(self, x: bool = True) -> None:
        """Whether passes change the graph."""
        self._optimize = bool(x)

    def ir_optim(self) -> bool:
        return self._optimize and self._level > 0

    def set_optimization_level(self, opt_level: int = 2) -> None:
        """0 leaves the graph as it is; the other levels run all passes."""
        if not 0 <= opt_level <= 3:
            raise InvalidArgument(f"a level is 0 to 3. Received: {opt_level}")
        self._level = opt_level

    def pass_builder(self) -> PassBuilder:
        return self._passes

    def delete_pass(self, pass_name: str) -> None:
        """Leave a pass out; Paddle's names for the same work do too."""
        self._passes.delete_pass(pass_name)

    def enable_custom_passes(
        self, passes: Sequence[str] = (), custom_pass_only: bool = False
    ) -> None:
        """Add passes to the list, or let it hold only these."""
        if custom_pass_only:
            self._passes._names = []
        for name in passes:
            self._passes.append_pass(name)

    def switch_ir_debug(self, x: bool = True, passes: Sequence[str] = ()) -> None:
        """Write the graph after every pass into the cache folder (or here)."""
        self._debug = bool(x)
        for name in passes:
            self._passes.append_pass(name)

    def set_optim_cache_dir(self, opt_cache_dir: str) -> None:
        """The folder of optimized models, debug output and engine choices."""
        self._cache_dir = os.fspath(opt_cache_dir)

    def enable_save_optim_model(self, save_optimized_model: bool = False) -> None:
        """Save the graph after its passes as `_optimized` in the cache folder."""
        self._save_optimized = bool(save_optimized_model)

    def use_optimized_model(self, x: bool = True) -> None:
        """Load what `enable_save_optim_model` saved, if it is there."""
        self._use_optimized = bool(x)

    def enable_new_ir(self, x: bool = True) -> None:
        """There is one graph here, whichever format a model came in."""

    def new_ir_enabled(self) -> bool:
        return True

    def enable_new_executor(self, x: bool = True) -> None:
        """There is one executor here."""

    def exp_disable_mixed_precision_ops(self, black_list: set[str]) -> None:
        """Ops that stay in float32 in a model of lower precision."""
        self._wide_ops = frozenset(black_list)

    def exp_enable_mixed_precision_ops(self, white_list: set[str]) -> None:
        """Ops that follow the lower precision although they would stay in float32."""
        self._low_ops = frozenset(white_list)

    def exp_sparse_conv_using_buffer(
        self, kernels: Sequence[Sequence[int]], strides: Sequence[Sequence[int]]
    ) -> None:
        """Sizes of sparse convolutions for which Paddle keeps buffers; XLA plans its own."""

    def enable_low_precision_io(self, x: bool = True) -> None:
        """Take inputs and give results in the model's lower precision, not in float32."""
        self._low_io = bool(x)

    # --- running --------------------------------------------------------------------------

    def enable_memory_optim(self, x: bool = True) -> None:
        """On (as at first), inputs given to `Predictor.run` are not kept once it is done."""
        self._memory_optim = bool(x)

    def enable_profile(self) -> None:
        """Measure the stages of every run; `Predictor.profile_report()` shows them."""
        self._profile = True

    def collect_shape_range_info(self, shape_range_info_path: str) -> None:
        """Write the input shapes that were run to this file, for `set_warm_up`."""
        self._shapes_file = os.fspath(shape_range_info_path)

    def shape_range_info_collected(self) -> bool:
        return bool(self._shapes_file)

    def shape_range_info_path(self) -> str:
        return self._shapes_file

    def set_warm_up(self, shapes: str | Sequence[dict[str, Sequence[int]]]) -> None:
        """Compile for these input shapes when the predictor is made.

        `shapes` are dicts from input to shape, or a file of `collect_shape_range_info`.
        """
        if isinstance(shapes, str | os.PathLike):
            from bireme.inference.shapes import read_shapes

            shapes = read_shapes(os.fspath(shapes))
        self._warm_up = [dict(s) for s in shapes]

    def disable_glog_info(self) -> None:
        """Say nothing in the log."""
        self._quiet = True

    def glog_info_disabled(self) -> bool:
        return self._quiet

    def switch_use_feed_fetch_ops(self, x: bool = True) -> None:
        """Handles are the way in and out, whatever this says; kept for programs that set it."""
        self._flags["feed_fetch"] = bool(x)

    def use_feed_fetch_ops_enabled(self) -> bool:
        return self._flags["feed_fetch"]

    def switch_specify_input_names(self, x: bool = True) -> None:
        """Inputs are always found by name; kept for programs that set it."""
        self._flags["specify_names"] = bool(x)

    def specify_input_name(self) -> bool:
        return self._flags["specify_names"]

    def summary(self) -> str:
        """All settings as a table."""
        rows = {
            "model": self._dir or self._program or ("memory" if self._buffers else "-"),
            "weights": self._params or "-",
            "engine": self._engine,
            "place": str(self._place),
            "precision": self._precision.name,
            "CPU threads": self._threads if self._threads_chosen else f"{self._threads} (xla: all)",
            "hand-written CPU kernels": self._cpu_kernels,
            "passes": ", ".join(self._passes.all_passes()) if self.ir_optim() else "none",
            "compiled shapes kept": self._max_programs,
            "cache folder": self._cache_dir or "-",
            "profile": self._profile,
        }
        width = max(map(len, rows))
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())

    def _precision_name(self) -> str:
        names = {PrecisionType.Half: "float16", PrecisionType.Bfloat16: "bfloat16"}
        return names.get(self._precision, "float32")

    def _set_precision(self, precision: PrecisionType) -> None:
        if precision not in (PrecisionType.Float32, PrecisionType.Bfloat16, PrecisionType.Half):
            raise InvalidArgument(
                f"a predictor computes in Float32, Half or Bfloat16. Received: {precision!r}; "
                "quantize the model itself for Int8"
            )
        self._precision = PrecisionType(precision)
