"""Every op that Bireme defines is exercised by a row, or says here why not."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

import bireme
from bireme.core import executor, trace
from bireme.core.op import OPS
from bireme.host import config
from tests.parity.harness import Run
from tests.parity.table import CASES

# Op -> why no row calls it.
LOD = "Paddle's Python has no function for it: tests/convert/paddle compares with its nets"
RANDOM = "random: tests/ops compares distributions"
GPU_ONLY = "Paddle has no CPU kernel to compare with: tests/ops"
CAPTURED = "in captured graphs only: tests/jit/test_programs.py compares with the wheel"
EXPERTS = "Paddle's layer refuses CPUs: tests/incubate/distributed compares with NumPy"
NOT_IN_THE_TABLE: dict[str, str] = {
    "experts_to_tokens": EXPERTS,
    "queue_lengths": EXPERTS,
    "queue_places": EXPERTS,
    "tokens_to_experts": EXPERTS,
    "alpha_dropout": RANDOM,
    "bernoulli": RANDOM,
    "binomial": RANDOM,
    "poisson": RANDOM,
    "randint": RANDOM,
    "random_transform": RANDOM,
    "randperm": RANDOM,
    "rrelu": RANDOM,
    "top_p_sampling": RANDOM,
    "uniform": RANDOM,
    "margin_cross_entropy": GPU_ONLY,
    "_flat_labels": GPU_ONLY,
    "_reduced": GPU_ONLY,
    "_same_sequence": GPU_ONLY,
    "_back_to_tokens": GPU_ONLY,
    "_blank": GPU_ONLY,
    "_by_row": GPU_ONLY,
    "_csr_mask": GPU_ONLY,
    "_filled": GPU_ONLY,
    "_log_sums": GPU_ONLY,
    "_opened": GPU_ONLY,
    "_owners": GPU_ONLY,
    "_per_choice": GPU_ONLY,
    "_per_expert": GPU_ONLY,
    "_rows_of_experts": GPU_ONLY,
    "_sorted_by_expert": GPU_ONLY,
    "_row_mask": GPU_ONLY,
    "llm_int8_linear": "Paddle has no CPU kernel to compare with: tests/quantization",
    "weight_dequantize": "Paddle has no CPU kernel to compare with: tests/quantization",
    "weight_quantize": "Paddle's layout belongs to one GPU generation: tests/quantization",
    "fused_conv": "made by a pass: tests/passes",
    "fused_linear": "made by a pass: tests/passes",
    "squeeze_excite": "made by a pass: tests/passes",
    "cond": CAPTURED,
    "scan": CAPTURED,
    "while_loop": CAPTURED,
    "noted_rows": "gradients of lazy embeddings only: tests/optimizer/test_lazy_mode.py",
    "merge_rows": "gradients of rows: tests/optimizer/test_rows.py",
    "rows_in_place": "gradients of rows: tests/optimizer/test_rows.py",
    "dimensions": "open sizes only: tests/convert/paddle",
    "expand_as": "open sizes only: tests/static/test_open_sizes.py",
    "_instead": "after random numbers: tests/ops/test_random.py",
    "projected_lstm": "networks over steps: tests/nn/test_rnn.py compares with the wheel",
    "quantised_linear": "packed blocks are ours alone: tests/kernels/test_quantised.py",
    "quantised_rows": "packed blocks are ours alone: tests/kernels/test_quantised.py",
    **dict.fromkeys(
        ("ragged_gru", "ragged_lstm", "ragged_max", "ragged_rows", "ragged_sum", "ragged_viterbi"),
        LOD,
    ),
}


def test_every_op_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    for family in pkgutil.iter_modules(bireme.ops.__path__):
        importlib.import_module(f"bireme.ops.{family.name}")
    used: set[str] = set()
    run_cold = executor.run_cold

    def watched(graph: Any, steps: list[Any], *rest: Any) -> list[Any]:
        used.update(node.call.op.name for node, _, _ in steps)
        return run_cold(graph, steps, *rest)

    trace.flush()
    executor.clear_programs()  # those that another test has compiled would not be interpreted
    monkeypatch.setattr(config, "compile_mode", "never")
    monkeypatch.setattr(executor, "run_cold", watched)
    for case in CASES:
        if not case.must_raise:
            run = Run(bireme, case)
            run.outputs()
            run.values()
    # Ops outside bireme.ops (optimizer updates, sharding, capture) are no user's calls.
    families = {
        n for n, o in OPS.items() if getattr(o.body, "__module__", "").startswith("bireme.ops")
    }
    missing = sorted(families - used - set(NOT_IN_THE_TABLE))
    assert not missing, f"no row exercises {missing}: add one to a rows_*.py file"
    stale = sorted(name for name in NOT_IN_THE_TABLE if name in used or name not in OPS)
    assert not stale, f"{stale} need no exception any more"
