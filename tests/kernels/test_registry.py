"""Every kernel has a test that compares it with its composition in float64 on random shapes."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

# Kernel -> its test with hypothesis, in this folder.
TESTED = {
    "aligned_vocabulary": "test_gpu_lowerings.test_a_padded_vocabulary_changes_nothing",
    "channel_means": "test_packed.test_means_of_channels",
    "columns_conv": "test_plain_images.test_few_windows_and_many_kernels",
    "decode": "test_gpu_decode.test_products_in_parts",
    "gate_gradients": "test_gpu_steps.test_gate_gradients",
    "gathered_max_pool": "test_gpu_lowerings.test_gathered_max_pool_gradients",
    "joined_gradients": "test_gpu_steps.test_layers_that_read_one_array",
    "joined_slices": "test_gpu_steps.test_gradients_of_neighbouring_slices",
    "kept_dropout": "test_cpu_kept.test_dropout",
    "kept_layer_norm": "test_cpu_kept.test_layer_norm",
    "kept_statistics": "test_gpu_lowerings.test_layer_norm_with_kept_statistics",
    "known_sums": "test_gpu_steps.test_norms_of_residual_sums",
    "native_attention": "test_native_attention.test_attention",
    "native_batch_norm": "test_native_images.test_batch_norm",
    "native_bfloat16": "test_cpu_bfloat16.test_random_shapes",
    "native_conv": "test_native.test_convolution",
    "native_gru": "test_native_rnn.test_recurrence",
    "native_layer_norm": "test_layer_norm.test_layer_norm",
    "native_linear": "test_native_linear.test_gradients",
    "native_lstm": "test_native_rnn.test_recurrence",
    "native_max_pool": "test_native_images.test_max_pooling",
    "native_simple_rnn": "test_native_rnn.test_recurrence",
    "one_pass_loss": "test_gpu_lowerings.test_the_loss_in_one_pass",
    "one_pass_statistics": "test_gpu_steps.test_batch_norm_in_one_pass",
    "packed_conv": "test_packed.test_convolution",
    "packed_linear": "test_packed.test_linear",
    "product_conv": "test_plain_images.test_windows_that_do_not_overlap",
    "rows_batch_norm": "test_plain_images.test_batch_norm",
    "rows_mean": "test_plain_images.test_means_of_images_and_factors_of_channels",
    "rows_scale": "test_plain_images.test_means_of_images_and_factors_of_channels",
    "shifted_conv": "test_plain_images.test_one_kernel_per_channel",
    "squeeze_excite": "test_packed.test_squeeze_and_excitation",
    "winograd_conv": "test_plain_images.test_three_by_three",
}
# Kernels without such a test, and why.
WITHOUT = {
    "cudnn_attention": "cuDNN's own code, which runs on a GPU only",
    "cudnn_attention_open": "the same with a padded length: tests/kernels/test_open_attention.py",
    "fused_pieces": "runs in the cold tier only: tests/backends/test_fused.py compares bodies",
    "shared_product": "runs in the cold tier only: test_direct.py compares it with NumPy's product",
    "native_cache_attend": "integers say which columns count: cases of test_cpu_decode.py",
    "native_rms_norm": "programs for inference only: cases of test_cpu_decode.py",
    "quantised_linear": "packed blocks: every format and odd sizes in test_quantised.py",
    "patch_product": "a reshape and a product: bench.gpu.check compares a ViT's losses on a GPU",
    "decoder": "CUDA, which runs on a GPU only: `python -m bench.gpu.decoder` compares it there",
}
NAMES = """
from bireme import kernels as package
from bireme.backends import fused
from bireme.core import kernels
package.install()
print(*kernels.names())
"""


def test_every_kernel_is_listed():
    # In a process of its own: other tests register kernels, as users do.
    done = subprocess.run([sys.executable, "-c", NAMES], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == set(TESTED) | set(WITHOUT)
    assert not set(TESTED) & set(WITHOUT)


@pytest.mark.parametrize("name", TESTED)
def test_the_test_exists_and_draws_its_examples(name):
    module, function = TESTED[name].split(".")
    test = getattr(import_module(f"tests.kernels.{module}"), function)
    assert getattr(test, "is_hypothesis_test", False)
