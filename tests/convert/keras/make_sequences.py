"""Writes `golden/sequences*` by Keras 3: recurrent layers and attention.

KERAS_BACKEND=tensorflow python tests/convert/keras/make_sequences.py
"""

from __future__ import annotations

import lzma
import pathlib
import tempfile

import keras
import numpy as np
from keras import layers as L

GOLDEN = pathlib.Path(__file__).parent / "golden"
RNG = np.random.default_rng(4)


def model() -> keras.Model:
    x = keras.Input((7, 6), name="x")
    both = L.Bidirectional(L.LSTM(4, return_sequences=True))(x)
    y = L.GRU(6, return_sequences=True, go_backwards=True)(both)
    y = L.MultiHeadAttention(2, 3)(y, x, key=both) + y
    y = L.Attention(use_scale=True)([y, x]) + L.AdditiveAttention()([x, y])
    y = L.RMSNormalization()(L.GroupNormalization(3)(y))
    turned = L.Bidirectional(L.GRU(3), merge_mode="sum")(y)
    plain = L.SimpleRNN(3, activation="relu", use_bias=False)(y)
    return keras.Model(x, [turned, plain, L.LSTM(2, use_bias=False)(y)])


def main() -> None:
    keras.utils.set_random_seed(3)
    made = model()
    for weight in made.weights:
        weight.assign(RNG.uniform(-0.8, 0.8, weight.shape))
    x = RNG.normal(size=(2, 7, 6)).astype("float32")
    arrays = {f"result{i}": np.asarray(r) for i, r in enumerate(made(x))}
    np.savez_compressed(GOLDEN / "sequences.npz", x=x, **arrays)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("sequences.keras", "sequences.h5"):
            path = pathlib.Path(folder, name)
            made.save(path)
            (GOLDEN / f"{name}.xz").write_bytes(lzma.compress(path.read_bytes(), preset=9))


if __name__ == "__main__":
    main()
