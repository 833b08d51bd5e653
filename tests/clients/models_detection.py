"""Detection and OCR: paddledet, paddlex."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.clients.cases import Net, case, images

# --- paddledet ----------------------------------------------------------------------------


@case("paddledet")
def yolov3_darknet() -> Net:
    from ppdet.modeling.backbones.darknet import DarkNet

    return Net(DarkNet(return_idx=[2, 3, 4]), images(2, 3, 64, 64), lambda m, x: m({"image": x}))


@case("paddledet")
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


def _marked(*, classes: int, size: int = 64, boxes: int = 3) -> Any:
    """Pictures with boxes, as the package's reader gives them."""

    def inputs(paddle: Any, rng: Any) -> dict[str, Any]:
        corner = rng.uniform(0, size / 2, (2, boxes, 2))
        extent = rng.uniform(size / 6, size / 2, (2, boxes, 2))
        dtype = paddle.get_default_dtype()
        given = {
            "image": rng.normal(size=(2, 3, size, size)).astype(dtype),
            "im_shape": np.full((2, 2), size, dtype),
            "scale_factor": np.ones((2, 2), dtype),
            "gt_bbox": np.concatenate([corner, corner + extent], -1).astype(dtype),
            "gt_class": rng.integers(0, classes, (2, boxes, 1)),
            "pad_gt_mask": np.ones((2, boxes, 1), dtype),
            "im_id": np.arange(2).reshape(2, 1),
        }
        return {k: paddle.to_tensor(v) for k, v in given.items()} | {"epoch_id": 0}

    return inputs


def _own_loss(paddle: Any, answer: Any) -> Any:
    return answer["loss"]


@case("paddledet", float32_only=True)
def ppyoloe_trained() -> Net:
    from ppdet.modeling.architectures.ppyoloe import PPYOLOE
    from ppdet.modeling.assigners.atss_assigner import ATSSAssigner
    from ppdet.modeling.assigners.task_aligned_assigner import TaskAlignedAssigner
    from ppdet.modeling.backbones.cspresnet import CSPResNet
    from ppdet.modeling.heads.ppyoloe_head import PPYOLOEHead
    from ppdet.modeling.necks.custom_pan import CustomCSPPAN

    backbone = CSPResNet(
        layers=[1, 1, 1, 1], channels=[16, 16, 32, 64, 64], return_idx=[1, 2, 3],
        use_large_stem=True, width_mult=1.0, depth_mult=1.0,
    )  # fmt: skip
    neck = CustomCSPPAN(
        in_channels=[32, 64, 64], out_channels=[48, 32, 24], stage_num=1, block_num=1, act="swish",
        spp=True,
    )  # fmt: skip
    head = PPYOLOEHead(
        in_channels=[48, 32, 24], num_classes=5,
        static_assigner=ATSSAssigner(topk=9, num_classes=5),
        assigner=TaskAlignedAssigner(topk=13, alpha=1.0, beta=6.0), nms=None, exclude_nms=True,
    )  # fmt: skip
    model = PPYOLOE(backbone, neck, head, post_process=None, ssod_loss=None)
    return Net(model, _marked(classes=5, size=128), loss=_own_loss)


@case("paddledet")
def picodet() -> Net:
    import paddle
    from ppdet.modeling.backbones.lcnet import LCNet
    from ppdet.modeling.necks.lc_pan import LCPAN

    class Parts(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = LCNet(scale=0.5, feature_maps=[3, 4, 5])
            self.neck = LCPAN([64, 128, 256], 32)

        def forward(self, x: Any) -> Any:
            return self.neck(self.backbone({"image": x}))

    return Net(Parts(), images(4, 3, 64, 64))


# --- paddlex ------------------------------------------------------------------------------


@case("paddlex")
def ppocr_v5_det() -> Net:
    from paddlex.inference.models.text_detection import modeling

    model = modeling.PPOCRV5MobileDet(modeling.PPOCRV5MobileDet.config_class())
    return Net(model, images(2, 3, 64, 64), lambda m, x: m.head(m.model(x)))


@case("paddlex")
def slanet() -> Net:
    from paddlex.inference.models.table_structure_recognition import modeling

    config = modeling.SLANet.config_class(max_text_length=4)
    return Net(modeling.SLANet(config), images(2, 3, 64, 64), lambda m, x: m.backbone(x))
