"""Small nets of Caffe, written field by field: text, and binary with random weights."""

from __future__ import annotations

import struct

import numpy as np


def varint(value: int) -> bytes:
    made = b""
    while value > 127:
        made += bytes([value & 127 | 128])
        value >>= 7
    return made + bytes([value])


def field(number: int, value: bytes | str | int) -> bytes:
    """One field of a message: a number, or bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def blob(array: np.ndarray, old: bool = False) -> bytes:
    """An array; old files have four sizes and unpacked numbers."""
    flat = array.astype("<f4").ravel()
    if old:
        sizes = [1] * (4 - array.ndim) + list(array.shape)
        numbers = b"".join(varint(5 << 3 | 5) + struct.pack("<f", v) for v in flat)
        return b"".join(field(1 + i, d) for i, d in enumerate(sizes)) + numbers
    shape = field(1, b"".join(map(varint, array.shape)))
    return field(7, shape) + field(5, flat.tobytes())


def weights_file(weights: dict[str, list[np.ndarray]], version: int = 2) -> bytes:
    made = field(1, "net")
    for name, arrays in weights.items():
        if version == 2:
            layer = field(1, name) + b"".join(field(7, blob(a)) for a in arrays)
            made += field(100, layer + field(2, "Whatever"))
        elif version == 1:
            made += field(2, field(4, name) + b"".join(field(6, blob(a, True)) for a in arrays))
        else:
            inner = field(1, name) + b"".join(field(50, blob(a, True)) for a in arrays)
            made += field(2, field(1, inner))
    return made


def layer(name: str, kind: str, bottoms: str, tops: str = "", settings: str = "") -> str:
    lines = [f'name: "{name}" type: "{kind}"']
    lines += [f'bottom: "{b}"' for b in bottoms.split()]
    lines += [f'top: "{t}"' for t in (tops or name).split()]
    return "layer {\n  " + "\n  ".join([*lines, settings]) + "\n}\n"


def _of(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(0, 0.4, shape).astype("float32")


PICTURES = (
    '# every way to say a thing\nname: "pictures"\ninput: "data"\n'
    "input_shape { dim: 1 dim: 4 dim: 15 dim: 13 }\n"
    + layer("c1", "Convolution", "data", "c1",
            "convolution_param { num_output: 6 kernel_size: 3 pad: 1 stride: 1 group: 2; "
            "weight_filler < type: 'xavier' > engine: CAFFE }")
    + layer("b1", "BatchNorm", "c1", "c1", "batch_norm_param { eps: 0.001 }")
    + layer("s1", "Scale", "c1", "c1", "scale_param: { bias_term: true }")
    + layer("r1", "ReLU", "c1", "c1", "relu_param { negative_slope: 0.1 }")
    + layer("p1", "Pooling", "c1", "p1", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }")
    + layer("p2", "Pooling", "c1", "p2",
            "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }")
    + layer("c2", "Convolution", "p1", "c2",
            "convolution_param { num_output: 6 kernel_h: 3 kernel_w: 1 pad_h: 2 pad_w: 0 "
            "stride_h: 1 stride_w: 1 dilation: 2 bias_term: false }")
    + layer("n2", "LRN", "c2", "n2", "lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 }")
    + layer("a2", "PReLU", "n2", "n2")
    + layer("e2", "Eltwise", "n2 p1", "e2", "eltwise_param { coeff: [0.5, -1.5] }")
    + layer("m2", "Eltwise", "e2 p1", "m2", "eltwise_param { operation: MAX }")
    + layer("l2", "Slice", "m2", "l2a l2b", "slice_param { slice_point: 2 }")
    + layer("t2", "TanH", "l2a", "l2a")
    + layer("j2", "Concat", "l2b l2a", "j2")
    + layer("d3", "Deconvolution", "j2", "d3",
            "convolution_param { num_output: 3 kernel_size: 4 stride: 3 group: 3 }")
    + layer("k3", "Crop", "d3 c1", "k3", "crop_param { axis: 2 offset: 0 offset: 1 }")
    + layer("g3", "Pooling", "k3", "g3", "pooling_param { pool: AVE global_pooling: true }")
    + layer("o3", "InnerProduct", "p2", "o3", "inner_product_param { num_output: 3 }")
    + layer("f3", "Flatten", "g3", "f3")
    + layer("h3", "Power", "o3", "h3", "power_param { scale: 0.5 shift: 0.25 power: 1.0 }")
    + layer("y", "Softmax", "h3", "y")
)  # fmt: skip


def pictures_weights() -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(3)
    spread = rng.uniform(1, 3, 6).astype("float32")
    return {
        "c1": [_of(rng, 6, 2, 3, 3), _of(rng, 6)],
        "b1": [_of(rng, 6) * 2, spread, np.array([2.0])],
        "s1": [_of(rng, 6) + 1, _of(rng, 6)],
        "c2": [_of(rng, 6, 6, 3, 1)],
        "a2": [_of(rng, 6)],
        "d3": [_of(rng, 6, 1, 4, 4), _of(rng, 3)],
        "o3": [_of(rng, 3, 6 * 8 * 7), _of(rng, 3)],
    }


def _head(name: str, kind: str, count: int) -> str:
    return (
        layer(f"{name}_{kind}", "Convolution", name, "",
              f"convolution_param {{ num_output: {count} kernel_size: 1 }}")
        + layer(f"{name}_{kind}_perm", "Permute", f"{name}_{kind}", "",
                "permute_param { order: 0 order: 2 order: 3 order: 1 }")
        + layer(f"{name}_{kind}_flat", "Flatten", f"{name}_{kind}_perm")
    )  # fmt: skip


DETECTOR = (
    'input: "data"\ninput_dim: 1 input_dim: 3 input_dim: 24 input_dim: 32\n'
    + layer("c1", "Convolution", "data", "",
            "convolution_param { num_output: 4 kernel_size: 3 stride: 4 pad: 1 }")
    + layer("u1", "Normalize", "c1", "",
            "norm_param { across_spatial: false channel_shared: false }")
    + layer("p1", "Pooling", "u1", "p1", "pooling_param { kernel_size: 2 stride: 2 }")
    + _head("u1", "loc", 16) + _head("u1", "conf", 12) + _head("p1", "loc", 12)
    + _head("p1", "conf", 9)
    + layer("u1_prior", "PriorBox", "u1 data", "",
            "prior_box_param { min_size: 6 max_size: 9 aspect_ratio: 2 flip: true clip: false "
            "variance: [0.1, 0.1, 0.2, 0.2] step: 4 offset: 0.5 }")
    + layer("p1_prior", "PriorBox", "p1 data", "",
            "prior_box_param { min_size: 12 aspect_ratio: 3 flip: true clip: true "
            "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 }")
    + layer("loc", "Concat", "u1_loc_flat p1_loc_flat", "", "concat_param { axis: 1 }")
    + layer("conf", "Concat", "u1_conf_flat p1_conf_flat", "", "concat_param { axis: 1 }")
    + layer("prior", "Concat", "u1_prior p1_prior", "", "concat_param { axis: 2 }")
    + layer("conf_rows", "Reshape", "conf", "",
            "reshape_param { shape { dim: 0 dim: -1 dim: 3 } }")
    + layer("conf_soft", "Softmax", "conf_rows", "", "softmax_param { axis: 2 }")
    + layer("conf_flat", "Flatten", "conf_soft")
    + layer("found", "DetectionOutput", "loc conf_flat prior", "",
            "detection_output_param { num_classes: 3 share_location: true "
            "background_label_id: 0 nms_param { nms_threshold: 0.45 top_k: 60 } "
            "code_type: CENTER_SIZE keep_top_k: 25 confidence_threshold: 0.2 }")
)  # fmt: skip


def detector_weights() -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(5)
    shapes = {
        "c1": (4, 3), "u1_loc": (16, 4), "u1_conf": (12, 4), "p1_loc": (12, 4), "p1_conf": (9, 4),
    }  # fmt: skip
    made = {}
    for name, (out, taken) in shapes.items():
        side = 3 if name == "c1" else 1
        made[name] = [_of(rng, out, taken, side, side), _of(rng, out)]
    made["u1"] = [_of(rng, 4) + 3]
    return made


NETS = {
    "pictures": (PICTURES, pictures_weights, (1, 4, 15, 13)),
    "detector": (DETECTOR, detector_weights, (1, 3, 24, 32)),
}
