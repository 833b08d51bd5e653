"""Writes `golden/`: what OpenCV 4.14 finds with the nets of `nets`. The tests do without it:

python tests/convert/caffe/make_golden.py
"""

from __future__ import annotations

import pathlib

import cv2
import numpy as np
from nets import NETS, weights_file

GOLDEN = pathlib.Path(__file__).parent / "golden"


def main() -> None:
    for name, (text, weights, shape) in NETS.items():
        files = [np.frombuffer(d, np.uint8) for d in (text.encode(), weights_file(weights()))]
        net = cv2.dnn.readNetFromCaffe(*files)
        x = np.random.default_rng(1).normal(size=shape).astype("float32")
        net.setInput(x)
        names = net.getUnconnectedOutLayersNames()
        results = net.forward(names)
        GOLDEN.mkdir(exist_ok=True)
        np.savez_compressed(GOLDEN / f"{name}.npz", x=x, **dict(zip(names, results, strict=True)))
        print(name, {n: r.shape for n, r in zip(names, results, strict=True)})


if __name__ == "__main__":
    main()
