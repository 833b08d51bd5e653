"""Every public function, class and Tensor method has a row, or says here why not."""

from __future__ import annotations

import fnmatch
import pathlib
import re
from typing import Any

import pytest

import bireme
from bireme.host import config
from tests.parity import derived, names
from tests.parity.harness import Run
from tests.parity.table import CASES
from tests.parity.test_parity import check_equal

TESTS = pathlib.Path(__file__).parents[1]

# Names that another folder of tests calls (looked for there, as words): what is random, reads
# files, changes modes, or is compared with the wheel over several steps.
ELSEWHERE: dict[str, str] = {
    "amp": "amp.* get_autocast_dtype",
    "audio": "audio.*",
    "autograd": "autograd.* seed",
    "convert": "onnx.export incubate.inference",
    "core": (
        "set_printoptions CPUPlace CUDAPlace seed Tensor.name Tensor.place Tensor.num_shard "
        "Tensor.get_selected_rows Tensor.reconstruct_from_"
    ),
    "device": "device.* static.xpu_places",
    "distributed": (
        "distributed.* static.default_main_program static.nn.sparse_embedding DataParallel "
        "Tensor.process_mesh Tensor.placements incubate.distributed.*"
    ),
    "distribution": "distribution.*",
    "geometric": "geometric.* incubate.graph_khop_sampler incubate.graph_sample_neighbors",
    "hapi": "Model summary flops callbacks.*",
    "incubate": "incubate.* nn.functional.moe_*",
    "inference": "inference.*",
    "io": "io.* save load hub.list hub.load",
    "jit": "jit.* static.InputSpec static.nn.switch_case static.nn.case",
    "metric": "metric.*",
    "nn": (
        "nn.initializer.* nn.utils.* static.create_parameter nn.ParameterDict nn.RNNCellBase "
        "nn.Layer nn.dynamic_decode nn.BeamSearchDecoder nn.AdaptiveLogSoftmaxWithLoss "
        "nn.Parameter nn.SyncBatchNorm ParamAttr"
    ),
    "ops": (
        "bernoulli binomial poisson standard_gamma multinomial randint randint_like randperm "
        "Generator normal log_normal *.bernoulli_ *.cauchy_ *.geometric_ *.log_normal_ *.normal_ "
        "*.exponential_ *.random_ *.uniform_ bernoulli_ cauchy_ geometric_ log_normal_ normal_ "
        "standard_normal get_rng_state set_rng_state manual_seed Tensor.multinomial "
        "Tensor.top_p_sampling nn.functional.dropout1d nn.functional.feature_alpha_dropout "
        "nn.functional.*flash* "
        "nn.functional.margin_cross_entropy nn.functional.rms_norm "
        "nn.functional.class_center_sample nn.functional.sparse_attention linalg.fp8* Tensor.stack "
        "Tensor.concat Tensor.broadcast_tensors Tensor.block_diag Tensor.multi_dot "
        "Tensor.take_along_dim"
    ),
    "optimizer": "optimizer.* regularizer.* nn.ClipGrad* incubate.optimizer.*",
    "profiler": "profiler.*",
    "quantization": "quantization.* nn.quant.*",
    "sparse": (
        "sparse.* Tensor.coalesce Tensor.crows Tensor.dense_dim Tensor.indices Tensor.nnz "
        "Tensor.is_coalesced Tensor.sparse_dim Tensor.to_dense Tensor.values"
    ),
    "static": "static.* disable_static enable_static Tensor.block",
    "text": "text.*",
    "utils": "utils.* sysconfig.* hub.help hub.load_state_dict_from_url from_dlpack to_dlpack",
    "vision": "vision.*",
    ".": (
        "enable_compat disable_compat LazyGuard MmapStorage disable_signal_handler set_flags "
        "get_flags batch"
    ),
}

# Names that no test needs to call by name, with the reason.
REASONS: dict[str, str] = {
    "dtype Tensor": "classes whose objects every row uses",
    "*Tensor": "rows_names.py makes one of each; they make Tensors, which is what is compared",
    "vision.models.*": "tests/vision/test_models.py builds every name of the module's list",
    "*cuda* *CUDAPinnedPlace *CUDAExtension *pin_memory Tensor.data_ptr": "hardware",
    "device.*": "hardware: tests/device calls what there is to call",
    "check_shape": "compares with each package's own classes",
    "autocast get_autocast_* amp.get_autocast_* amp.is_*": (
        "the wheel answers for its own kernels; tests/amp looks at what autocast does here"
    ),
    "amp.debugging.enable_operator_stats_collection": "its guard is tested: tests/amp",
    "autograd.Function autograd.PyLayerContext": "PyLayer and what it hands out: tests/autograd",
    "incubate.nn.*": "the wheel has no CPU kernel: tests/incubate compares with plain layers",
    "jit.TranslatedLayer jit.set_verbosity": "what jit.load returns; prints of the wheel's tracer",
    "metric.Metric optimizer.Optimizer optimizer.lr.LRScheduler": "base classes; theirs are tested",
    "distributed.DistModel distributed.fleet.HybridCommunicateGroup": (
        "what distributed.to_static and fleet.get_hybrid_communicate_group return"
    ),
    "distributed.Placement distributed.ShardedWeight distributed.ShardedStateDict": (
        "a base class, and what Layer.sharded_state_dict holds"
    ),
    "distributed.passes.PassContext": "what a PassManager returns: tests/distributed",
    "nn.Module": "another name of nn.Layer",
    "nn.FeatureAlphaDropout": "random: nn.functional.feature_alpha_dropout is in tests/ops",
    "static.BuildStrategy": "switches without effect",
    "callbacks.ProgBarLogger": "Model.fit makes it: tests/hapi reads what it prints",
    "distribution*.Transform quantization.BaseObserver": "base classes; theirs are tested",
    "sparse.nn.functional.subm_conv*_igemm": "the wheel has no CPU kernel: subm_conv2d has rows",
    "vision.transforms.BaseTransform": "a base class",
    "vision.transforms.*Transform": "random: ColorJitter and the functions below it are tested",
    "Tensor.broadcast_shape Tensor.broadcast_shapes": "functions of shapes; fail as methods there",
    "Tensor.grad_ Tensor.grad_fn Tensor.get_tensor Tensor.get_device Tensor.device": (
        "handles of each package's own engine"
    ),
    "Tensor.cols": "of sparse tensors: tests/sparse reads it from CSR",
    "Tensor.svd_lowrank": "random: linalg.svd_lowrank has rows",
}  # fmt: skip


def _matches(name: str, patterns: str) -> bool:
    return any(fnmatch.fnmatchcase(name, p) for p in patterns.split())


def _words(folder: str) -> set[str]:
    files = TESTS.glob("*.py") if folder == "." else (TESTS / folder).rglob("*.py")
    return {w for f in files for w in re.findall(r"\w+", f.read_text())}


@pytest.fixture
def uncalled(paddle: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Public names that no row calls."""
    monkeypatch.setattr(config, "compile_mode", "never")
    public = names.public_names(paddle)
    keys = {name: id(names.thing(name)) for name in public}
    with names.recorded(public) as used:
        for case in CASES:
            if not case.must_raise:
                Run(bireme, case).outputs()
    return [name for name in public if keys[name] not in used]


def rows_from_others(left: list[str]) -> list[tuple[str, Any]]:
    """(name, row) of those names that a function's row serves."""
    methods = [n for n in left if n.startswith("Tensor.")]
    return list(derived.derived(methods, [n for n in left if not n.startswith("Tensor.")]))


@pytest.mark.filterwarnings("ignore")
def test_every_name_has_a_row_or_a_reason(uncalled: list[str], paddle: Any) -> None:
    rows = rows_from_others(uncalled)
    failures = []
    for name, case in rows:
        try:
            check_equal(case, paddle)
        except Exception as e:
            failures.append(f"{name} as {case.id}: {e}")
    assert not failures, "\n".join(failures)
    left = sorted(set(uncalled) - {name for name, _ in rows})
    found = {folder: _words(folder) for folder in ELSEWHERE}
    unexplained = []
    for name in left:
        word = name.rpartition(".")[2]
        tested = any(_matches(name, p) and word in found[f] for f, p in ELSEWHERE.items())
        if not tested and not any(_matches(name, p) for p in REASONS):
            unexplained.append(name)
    assert not unexplained, (
        f"{unexplained}: add rows, or name the folder that tests them (ELSEWHERE), or the reason"
    )
    patterns = [p for text in (*ELSEWHERE.values(), *REASONS) for p in text.split()]
    stale = [p for p in patterns if not any(fnmatch.fnmatchcase(n, p) for n in left)]
    assert not stale, f"{stale} match no name without a row any more"
