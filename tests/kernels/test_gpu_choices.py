"""Which kernels a GPU's programs have: a change of what is chosen or fused fails here."""

from __future__ import annotations

import pytest

from bireme.core import kernels, requirements
from bireme.kernels import fusing
from tests.kernels.gpu_programs import PROGRAMS, arguments, as_on_a_gpu, signature

TRANSFORMER = {
    ("attention", "cudnn_attention"): 2,
    ("attention_grad", "cudnn_attention"): 2,
    ("cross_entropy", "one_pass_loss"): 1,
    ("cross_entropy_grad", "one_pass_loss"): 1,
    ("matmul", "aligned_vocabulary"): 1,
    ("matmul_grad", "aligned_vocabulary"): 1,
}
GPT = TRANSFORMER | {
    ("add", "known_sums"): 9,
    ("layer_norm", "kept_statistics"): 5,
    ("layer_norm_grad", "kept_statistics"): 5,
    ("linear", "known_sums"): 8,
    ("linear_grad", "joined_gradients"): 4,
    ("reshape", "aligned_vocabulary"): 6,
    ("reshape_grad", "aligned_vocabulary"): 5,
}
CHOSEN = {
    "gpt": GPT,
    "gpt captured": GPT,
    "llama": TRANSFORMER
    | {
        ("add", "known_sums"): 31,
        ("getitem_grad", "joined_slices"): 8,
        ("linear_grad", "joined_gradients"): 10,
        ("multiply_grad", "gate_gradients"): 2,
        ("reshape", "aligned_vocabulary"): 10,
        ("reshape_grad", "aligned_vocabulary"): 9,
        ("rms_norm", "kept_statistics"): 5,
        ("rms_norm_grad", "kept_statistics"): 5,
        ("silu", "gate_gradients"): 2,
        ("silu_grad", "gate_gradients"): 2,
    },
    "images": {
        ("batch_norm_train", "one_pass_statistics"): 1,
        ("batch_norm_train_grad", "one_pass_statistics"): 1,
        ("conv", "patch_product"): 1,
        ("conv_grad", "patch_product"): 1,
        ("cross_entropy", "one_pass_loss"): 1,
        ("cross_entropy_grad", "one_pass_loss"): 1,
        ("linear", "aligned_vocabulary"): 1,
        ("linear_grad", "aligned_vocabulary"): 1,
        ("max_pool_grad", "gathered_max_pool"): 1,
        ("reshape", "aligned_vocabulary"): 1,
        ("reshape_grad", "aligned_vocabulary"): 1,
    },
    "gates in half": {
        ("add", "known_sums"): 6,
        ("getitem_grad", "joined_slices"): 1,
        ("linear_grad", "joined_gradients"): 4,
        ("multiply_grad", "gate_gradients"): 1,
        ("silu", "gate_gradients"): 1,
        ("silu_grad", "gate_gradients"): 1,
        ("swiglu_grad", "gate_gradients"): 1,
    },
    "decoding": {
        ("add", "decode"): 4,
        ("linear", "decode"): 4,
        ("linears", "decode"): 4,
        ("rms_norm", "decode"): 4,
        ("silu", "gate_gradients"): 2,
    },
}
# Kernels in the traced program that its results depend on, with the types of their results.
GPT_KERNELS = {
    "cross_entropy_slope bfloat16[32,128]": 1,
    "log_sum_exp float32[32],float32[32]": 1,
    "norm_gradient float32[32,32],float32[2,32],float32[2,32]": 1,
    "norm_gradient float32[32,32],float32[2,32],float32[2,32],bfloat16[32,32]": 3,
    "norm_of_sum float32[32,32],bfloat16[32,32],float32[32],float32[32]": 4,
}
TRACED = {
    "gpt": GPT_KERNELS,
    "gpt captured": GPT_KERNELS,
    "llama": {
        "cross_entropy_slope bfloat16[32,128]": 1,
        "gate_gradients bfloat16[2048],bfloat16[2048]": 2,
        "log_sum_exp float32[32],float32[32]": 1,
        "norm_gradient float32[32,32],float32[2,32]": 1,
        "norm_gradient float32[32,32],float32[2,32],bfloat16[32,32]": 3,
        "norm_of_sum float32[32,32],bfloat16[32,32],float32[32]": 4,
    },
    "images": {
        "cross_entropy_slope bfloat16[2,64]": 1,
        "log_sum_exp float32[2],float32[2]": 1,
    },
    "gates in half": {"gate_gradients float16[128],float16[128]": 2},
    "decoding": {
        "decode_product float32[1,1,128],float32[1,1]": 1,
        "decode_product float32[1,1,128],float32[1,1],bfloat16[1,64]": 1,
        "decode_product float32[1,1,256],float32[1,1],bfloat16[1,64]": 2,
        "decode_product float32[1,1,64]": 4,
    },
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_kernels_of_a_program(name: str) -> None:
    with as_on_a_gpu():
        chosen, primitives = signature(PROGRAMS[name]())
    assert dict(chosen) == CHOSEN[name]
    traced = {p.removeprefix("kernel "): n for p, n in primitives.items() if "kernel " in p}
    assert traced == TRACED[name]


@pytest.mark.parametrize("name", ["gpt", "gpt captured"])
def test_requirements_keep_their_numbers(name: str) -> None:
    """Class and token numbers are checked in the order in which the recorded nodes ask for it."""
    import jax

    with as_on_a_gpu():
        graph = PROGRAMS[name]()
        total = requirements.count(graph.needed())
        evidence: list[object] = []

        def program(floats, ints, *inputs):
            with requirements.collecting(range(total)) as found:
                made = fusing.evaluator(graph, fusing.fused(graph, "gpu"))(floats, ints, *inputs)
                evidence.extend(found())
            return made

        jax.eval_shape(program, *arguments(graph))
    assert total >= 4
    assert all(isinstance(e, jax.core.Tracer) for e in evidence)


def test_a_rewritten_graph_shows_what_was_fused() -> None:
    with as_on_a_gpu():
        graph = PROGRAMS["gpt"]()
        shown = str(fusing.fused(graph, "gpu"))
        assert shown.count("= norm_of_sum(") == 4
        assert shown.count("= norm_gradient_and_sum(") == 4
        assert shown.count("= attention_pull(") == 2
        assert "loss_gradient(" in shown
        with kernels.disabled("kept_statistics"):
            assert "norm_" not in str(fusing.fused(graph, "gpu")).replace("layer_norm", "")
        with kernels.disabled():
            assert fusing.fused(graph, "gpu") is graph
    assert fusing.fused(graph, "cpu") is graph
