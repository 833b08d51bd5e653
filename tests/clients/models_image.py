"""Classifiers and segmentation: paddleclas, paddleseg."""

from __future__ import annotations

from typing import Any

from tests.clients.cases import Net, case, images

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
def resnet50() -> Net:
    return Net(_backbones().ResNet50(class_num=10), images(8, 3, 64, 64))


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


@case("paddleclas")
def convnext() -> Net:
    from paddleclas.ppcls.arch.backbone.model_zoo.convnext import ConvNeXt

    model = ConvNeXt(class_num=10, depths=[1, 1, 2, 1], dims=[16, 32, 48, 64])
    return Net(model, images(2, 3, 64, 64))


# --- paddleseg ----------------------------------------------------------------------------


@case("paddleseg")
def unet() -> Net:
    from paddleseg.models import UNet

    return Net(UNet(num_classes=3), images(1, 3, 32, 32))


@case("paddleseg")
def deeplab_v3p() -> Net:
    from paddleseg.models import DeepLabV3P
    from paddleseg.models.backbones import ResNet18_vd

    model = DeepLabV3P(
        num_classes=3, backbone=ResNet18_vd(output_stride=8), backbone_indices=[0, 3]
    )
    return Net(model, images(2, 3, 64, 64))


@case("paddleseg")
def pp_liteseg() -> Net:
    from paddleseg.models import PPLiteSeg
    from paddleseg.models.backbones import STDC1

    return Net(PPLiteSeg(num_classes=3, backbone=STDC1()), images(2, 3, 64, 64))


@case("paddleseg")
def segformer() -> Net:
    from paddleseg.models import SegFormer
    from paddleseg.models.backbones.mix_transformer import MixVisionTransformer

    backbone = MixVisionTransformer(
        embed_dims=[8, 16, 24, 32], num_heads=[1, 2, 3, 4], mlp_ratios=[2, 2, 2, 2],
        qkv_bias=True, depths=[1, 1, 1, 1], sr_ratios=[8, 4, 2, 1],
    )  # fmt: skip
    model = SegFormer(num_classes=3, backbone=backbone, embedding_dim=16)
    return Net(model, images(2, 3, 64, 64))
