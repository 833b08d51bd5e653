"""Writes the models in `golden/` by Keras 3 on JAX, with inputs and results. The tests do without:

KERAS_BACKEND=jax python tests/convert/keras/make_golden.py
"""

from __future__ import annotations

import pathlib

import keras
import numpy as np
from keras import layers as L

GOLDEN = pathlib.Path(__file__).parent / "golden"
RNG = np.random.default_rng(2)


def pictures() -> keras.Model:
    """Branches, a layer that is called twice, a model inside, sizes that change."""
    inner = keras.Sequential(
        [keras.Input((None, None, 6)), L.SeparableConv2D(6, 3, padding="same"), L.LeakyReLU()]
    )
    x = keras.Input((11, 9, 3), name="image")
    y = L.Conv2D(6, 3, strides=2, padding="same", activation="relu", name="stem.conv")(x)
    y = L.BatchNormalization()(y)
    twice = L.Conv2D(6, 1, name="twice")
    y = L.Add()([twice(y), inner(y), inner(twice(y))])
    y = L.PReLU(shared_axes=[1, 2])(L.DepthwiseConv2D(3, dilation_rate=2, padding="same")(y))
    y = L.ZeroPadding2D(((1, 0), (0, 2)))(y)
    pooled = L.MaxPooling2D(3, 2, padding="same")(y)
    mean = L.AveragePooling2D(3, 2, padding="same")(y)
    z = L.Conv2DTranspose(4, 4, strides=2, padding="same")(L.Concatenate()([pooled, mean]))
    z = L.UpSampling2D(2, interpolation="bilinear")(L.Cropping2D(1)(z))
    z = L.LayerNormalization()(L.Activation("swish")(z))
    z = L.ReLU(max_value=2.0, negative_slope=0.1, threshold=0.05)(z)
    scores = L.Dense(5, activation="softmax")(L.GlobalAveragePooling2D()(z))
    flat = L.Flatten()(L.Rescaling(0.5, 1.0)(L.UpSampling2D(2)(pooled)))
    return keras.Model(x, [scores, L.Dense(3, activation="hard_sigmoid")(flat)])


def sounds() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((12, 4)),
            L.Conv1D(6, 3, padding="causal", dilation_rate=2, activation="gelu"),
            L.BatchNormalization(scale=False),
            L.MaxPooling1D(2),
            L.Conv1D(4, 3, strides=2, use_bias=False),
            L.Permute((2, 1)),
            L.Reshape((-1, 4)),
            L.GlobalMaxPooling1D(),
            L.RepeatVector(2),
            L.Dropout(0.5),
            L.Dense(3, activation="elu"),
        ]
    )


def main() -> None:
    keras.utils.set_random_seed(3)
    GOLDEN.mkdir(exist_ok=True)
    for name, model in (("pictures", pictures()), ("sounds", sounds())):
        for weight in model.weights:
            low = 0.5 if "variance" in weight.path or "gamma" in weight.path else -0.5
            weight.assign(RNG.uniform(low, low + 1, weight.shape))
        x = RNG.normal(size=(2, *model.input_shape[1:])).astype("float32")
        results = model(x)
        results = results if isinstance(results, list) else [results]
        arrays = {f"result{i}": np.asarray(r) for i, r in enumerate(results)}
        np.savez_compressed(GOLDEN / f"{name}.npz", x=x, **arrays)
        model.save(GOLDEN / f"{name}.keras")
        if name == "sounds":
            model.save(GOLDEN / f"{name}.h5")
    own = keras.Sequential([keras.Input((2,)), L.Lambda(lambda x: x + 1)])
    own.save(GOLDEN / "lambda.keras")


if __name__ == "__main__":
    main()
