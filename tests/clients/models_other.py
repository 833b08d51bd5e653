"""Speech, sciences, diffusion: paddlespeech, paddlesci, ppdiffusers."""

from __future__ import annotations

from typing import Any

from tests.clients.cases import Net, case, floats
from tests.clients.models_text import transformers

# --- paddlespeech, paddlesci --------------------------------------------------------------


# Its table of positions is float32, with sines of 5,000 radians: the last bit of exp() counts.
@case("paddlespeech", formula=1e-3, rounding=1e-3)
def conformer() -> Net:
    from paddlespeech.t2s.modules.transformer.encoder import ConformerEncoder

    def sounds(paddle: Any, rng: Any) -> Any:
        frames = floats(paddle, rng, 2, 60, 40)
        mask = paddle.arange(60).unsqueeze(0) < paddle.to_tensor([[60], [47]])
        return frames, mask.unsqueeze(1)

    model = ConformerEncoder(
        idim=40, attention_dim=32, attention_heads=4, linear_units=64, num_blocks=2,
        input_layer="linear", macaron_style=True, use_cnn_module=True, cnn_module_kernel=7,
    )  # fmt: skip
    return Net(model, sounds, lambda m, x: m(*x))


@case("paddlesci")
def science_mlp() -> Net:
    from ppsci.arch import MLP

    model = MLP(("x", "y"), ("u", "v"), 4, 24, "tanh", weight_norm=True)

    def points(paddle: Any, rng: Any) -> Any:
        return {k: floats(paddle, rng, 16, 1) for k in "xy"}

    return Net(model, points)


# --- ppdiffusers --------------------------------------------------------------------------


@case("ppdiffusers")
def diffusion_unet() -> Net:
    transformers()
    from ppdiffusers.models.unet_2d_condition import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1,
        block_out_channels=(32, 64), norm_num_groups=8, cross_attention_dim=24,
        attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip

    def noise(paddle: Any, rng: Any) -> Any:
        sample = floats(paddle, rng, 2, 4, 16, 16)
        return sample, paddle.to_tensor([5, 11]), floats(paddle, rng, 2, 7, 24)

    return Net(model, noise, lambda m, x: m(*x, return_dict=False))


@case("ppdiffusers")
def autoencoder() -> Net:
    transformers()
    from ppdiffusers.models.autoencoder_kl import AutoencoderKL

    model = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        block_out_channels=(16, 32), norm_num_groups=8, latent_channels=4, sample_size=16,
    )  # fmt: skip
    pictures = lambda paddle, rng: floats(paddle, rng, 2, 3, 16, 16)  # noqa: E731
    return Net(model, pictures, lambda m, x: m(x, return_dict=False))


# --- paddlespeech: voices ------------------------------------------------------------------


@case("paddlespeech", float32_only=True)
def hifigan() -> Net:
    from paddlespeech.t2s.models.hifigan import HiFiGANGenerator

    model = HiFiGANGenerator(
        in_channels=20, channels=32, upsample_scales=(4, 4), upsample_kernel_sizes=(8, 8),
        resblock_kernel_sizes=(3, 7), resblock_dilations=[(1, 3), (1, 3)],
    )  # fmt: skip
    return Net(model, lambda paddle, rng: floats(paddle, rng, 2, 20, 11))
