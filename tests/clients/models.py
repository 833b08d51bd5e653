"""The models: how each client's own code builds one, small, and what goes in.

Client modules are imported inside the functions: by then `import paddle` means the engine that is
being looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.clients.run import plain_loss


@dataclass
class Net:
    model: Any
    inputs: Callable[[Any, Any], Any]
    call: Callable[[Any, Any], Any] = lambda model, inputs: model(inputs)
    loss: Callable[[Any, Any], Any] = plain_loss


@dataclass
class Case:
    package: str
    build: Callable[[], Net]
    tolerance: float = 1e-4
    quick: bool = False
    # Deep nets with batch norm over a handful of values magnify the last bit of a float32.
    dtype: str = "float32"


CASES: dict[str, Case] = {}


def case(package: str, **settings: Any) -> Callable[[Callable[[], Net]], Callable[[], Net]]:
    def add(build: Callable[[], Net]) -> Callable[[], Net]:
        CASES[build.__name__] = Case(package, build, **settings)
        return build

    return add


def images(*shape: int) -> Callable[[Any, Any], Any]:
    return lambda paddle, rng: paddle.to_tensor(
        rng.normal(size=shape).astype(paddle.get_default_dtype())
    )


def tokens(size: int, *shape: int) -> Callable[[Any, Any], Any]:
    return lambda paddle, rng: paddle.to_tensor(rng.integers(1, size, shape))


# --- paddlenlp ----------------------------------------------------------------------------

_TINY = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


def _transformers() -> Any:
    import paddlenlp.data  # noqa: F401 (the package's own order of imports)
    import paddlenlp.transformers as nlp

    return nlp


def _labelled(model: Any, ids: Any) -> Any:
    """The model's own loss of the same tokens, and its logits."""
    return model(ids, labels=ids)


def _first(paddle: Any, answer: Any) -> Any:
    return answer[0]


@case("paddlenlp", quick=True)
def bert() -> Net:
    nlp = _transformers()
    config = nlp.BertConfig(**_TINY, num_labels=3)
    return Net(nlp.BertForSequenceClassification(config), tokens(99, 2, 13))


@case("paddlenlp")
def ernie() -> Net:
    nlp = _transformers()
    config = nlp.ErnieConfig(**_TINY, num_labels=5)
    return Net(nlp.ErnieForTokenClassification(config), tokens(99, 2, 13))


@case("paddlenlp")
def gpt() -> Net:
    nlp = _transformers()
    model = nlp.GPTForCausalLM(nlp.GPTConfig(**_TINY))
    return Net(model, tokens(99, 2, 13), _labelled, _first)


@case("paddlenlp")
def llama() -> Net:
    nlp = _transformers()
    config = nlp.LlamaConfig(**_TINY, num_key_value_heads=2, use_flash_attention=False)
    return Net(nlp.LlamaForCausalLM(config), tokens(99, 2, 13), _labelled, _first)


@case("paddlenlp")
def t5() -> Net:
    nlp = _transformers()
    config = nlp.T5Config(
        vocab_size=99,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=4,
        bos_token_id=0,
    )
    model = nlp.T5ForConditionalGeneration(config)
    return Net(model, tokens(99, 2, 13), _labelled, _first)


# --- paddleclas ---------------------------------------------------------------------------


def _backbones() -> Any:
    import paddleclas.ppcls.arch.backbone as backbones
    from paddleclas.ppcls.utils import logger

    logger.init_logger()
    return backbones


@case("paddleclas")
def pplcnet() -> Net:
    return Net(_backbones().PPLCNet_x0_25(class_num=10), images(2, 3, 64, 64))


@case("paddleclas")
def resnet18() -> Net:
    return Net(_backbones().ResNet18(class_num=10), images(8, 3, 64, 64))


@case("paddleclas")
def mobilenet_v3() -> Net:
    return Net(_backbones().MobileNetV3_small_x0_35(class_num=10), images(2, 3, 64, 64))


@case("paddleclas")
def swin() -> Net:
    from paddleclas.ppcls.arch.backbone.legendary_models import swin_transformer

    model = swin_transformer.SwinTransformer(
        img_size=64, patch_size=4, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4,
        class_num=10, drop_path_rate=0.0,
    )  # fmt: skip
    return Net(model, images(2, 3, 64, 64))


@case("paddleclas", quick=True)
def vit() -> Net:
    from paddleclas.ppcls.arch.backbone.model_zoo import vision_transformer

    model = vision_transformer.VisionTransformer(
        img_size=32, patch_size=8, class_num=10, embed_dim=32, depth=3, num_heads=4, qkv_bias=True
    )
    return Net(model, images(2, 3, 32, 32))


# --- paddledet ----------------------------------------------------------------------------


@case("paddledet", dtype="float64")
def yolov3_darknet() -> Net:
    from ppdet.modeling.backbones.darknet import DarkNet

    return Net(DarkNet(return_idx=[2, 3, 4]), images(2, 3, 64, 64), lambda m, x: m({"image": x}))


@case("paddledet", dtype="float64")
def ppyoloe() -> Net:
    import paddle
    from ppdet.modeling.backbones.cspresnet import CSPResNet
    from ppdet.modeling.necks.custom_pan import CustomCSPPAN

    class Parts(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = CSPResNet(
                layers=[1, 1, 1, 1], channels=[16, 16, 32, 64, 64], return_idx=[1, 2, 3],
                use_large_stem=True, width_mult=1.0, depth_mult=1.0,
            )  # fmt: skip
            self.neck = CustomCSPPAN(
                in_channels=[32, 64, 64], out_channels=[48, 32, 24], stage_num=1, block_num=1,
                act="swish", spp=True,
            )  # fmt: skip

        def forward(self, x: Any) -> Any:
            return self.neck(self.backbone({"image": x}))

    return Net(Parts(), images(2, 3, 64, 64))


# --- paddleseg ----------------------------------------------------------------------------


@case("paddleseg")
def unet() -> Net:
    from paddleseg.models import UNet

    return Net(UNet(num_classes=3), images(1, 3, 32, 32))


@case("paddleseg", dtype="float64")
def deeplab_v3p() -> Net:
    from paddleseg.models import DeepLabV3P
    from paddleseg.models.backbones import ResNet18_vd

    model = DeepLabV3P(
        num_classes=3, backbone=ResNet18_vd(output_stride=8), backbone_indices=[0, 3]
    )
    return Net(model, images(2, 3, 64, 64))


@case("paddleseg", dtype="float64")
def pp_liteseg() -> Net:
    from paddleseg.models import PPLiteSeg
    from paddleseg.models.backbones import STDC1

    return Net(PPLiteSeg(num_classes=3, backbone=STDC1()), images(2, 3, 64, 64))


# --- paddlex ------------------------------------------------------------------------------


@case("paddlex", dtype="float64")
def ppocr_v5_det() -> Net:
    from paddlex.inference.models.text_detection import modeling

    model = modeling.PPOCRV5MobileDet(modeling.PPOCRV5MobileDet.config_class())
    return Net(model, images(2, 3, 64, 64), lambda m, x: m.head(m.model(x)))


# --- paddlespeech, paddlesci --------------------------------------------------------------


# Its table of positions has sines of 5,000 radians: the last bit of exp() counts 5,000 times.
@case("paddlespeech", tolerance=1e-3)
def conformer() -> Net:
    from paddlespeech.t2s.modules.transformer.encoder import ConformerEncoder

    def sounds(paddle: Any, rng: Any) -> Any:
        frames = paddle.to_tensor(rng.normal(size=(2, 60, 40)).astype("float32"))
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
        return {k: paddle.to_tensor(rng.normal(size=(16, 1)).astype("float32")) for k in "xy"}

    return Net(model, points)


# --- ppdiffusers --------------------------------------------------------------------------


@case("ppdiffusers")
def diffusion_unet() -> Net:
    _transformers()
    from ppdiffusers.models.unet_2d_condition import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1,
        block_out_channels=(32, 64), norm_num_groups=8, cross_attention_dim=24,
        attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip

    def noise(paddle: Any, rng: Any) -> Any:
        draw = lambda *shape: paddle.to_tensor(rng.normal(size=shape).astype("float32"))  # noqa: E731
        return draw(2, 4, 16, 16), paddle.to_tensor([5, 11]), draw(2, 7, 24)

    return Net(model, noise, lambda m, x: m(*x, return_dict=False))
