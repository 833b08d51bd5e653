"""Run as a process of its own: loads the demo's model and images, saves its predictions."""

from __future__ import annotations

import sys
from pathlib import Path

import bireme as paddle
from bireme.demo.mnist_cnn import DigitNet, predict


def main(folder: Path) -> None:
    model = DigitNet()
    model.set_state_dict(paddle.load(folder / "model.safetensors"))
    images = paddle.load(folder / "digits.safetensors", return_numpy=True)["images"]
    paddle.save({"scores": predict(model, images)}, folder / "predictions.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
