"""Layers and small networks, with Paddle's weights (state_dict names are compared as well)."""

from tests.parity.table import I, T, V, layer, layer_fn

LOOSE = {"_rtol": 1e-4, "_atol": 1e-4}

layer("nn.Linear", 4, 3, inputs=[T(2, 4)])
layer("nn.Linear", 4, 3, bias_attr=False, inputs=[T(5, 2, 4)])
layer("nn.Embedding", 5, 3, inputs=[V([[0, 2], [1, 3]], "int64")])
layer("nn.Embedding", 5, 3, padding_idx=2, inputs=[V([[0, 2], [1, 3]], "int64")])
layer("nn.Bilinear", 3, 4, 2, inputs=[T(5, 3), T(5, 4)], **LOOSE)
layer("nn.Flatten", inputs=[T(2, 3, 4)])
layer("nn.Flatten", 0, 1, inputs=[T(2, 3, 4)])
layer("nn.Unflatten", 1, [2, 3], inputs=[T(2, 6)])
layer("nn.Dropout", 0.5, inputs=[T(3, 4)], _eval=True)
layer("nn.Dropout", 0.0, inputs=[T(3, 4)])
layer("nn.Dropout2D", 0.5, inputs=[T(2, 3, 4, 4)], _eval=True)
layer("nn.Dropout3D", 0.5, inputs=[T(2, 3, 2, 2, 2)], _eval=True)
layer("nn.AlphaDropout", 0.5, inputs=[T(3, 4)], _eval=True)
layer("nn.CosineSimilarity", axis=1, inputs=[T(3, 4), T(3, 4)], **LOOSE)
layer("nn.GLU", dim=1, inputs=[T(3, 4)])
layer("nn.Hardshrink", lambd=0.4, inputs=[T(3, 4)])
layer("nn.Softshrink", lambd=0.4, inputs=[T(3, 4)])
layer_fn("LayerList-modules", lambda p: p.nn.LayerList(modules=[p.nn.Linear(2, 2)])[0], [T(3, 2)])
layer_fn(
    "LayerDict-modules", lambda p: p.nn.LayerDict(modules={"a": p.nn.Linear(2, 2)})["a"], [T(3, 2)]
)
layer("nn.PairwiseDistance", inputs=[T(3, 4), T(3, 4)], **LOOSE)
layer("nn.Pad1D", [1, 2], inputs=[T(2, 3, 4)])
layer("nn.Pad2D", [1, 2, 0, 1], mode="reflect", inputs=[T(2, 3, 4, 4)])
layer("nn.Pad3D", 1, mode="replicate", inputs=[T(1, 2, 3, 3, 3)])
layer("nn.ZeroPad2D", [1, 0, 2, 1], inputs=[T(2, 3, 4, 4)])
layer("nn.Upsample", scale_factor=2, mode="bilinear", inputs=[T(1, 2, 4, 4)], **LOOSE)
layer("nn.Upsample", size=[7, 6], inputs=[T(1, 2, 4, 4)])
layer("nn.UpsamplingNearest2D", scale_factor=2, inputs=[T(1, 2, 4, 4)])
layer("nn.UpsamplingBilinear2D", size=[6, 6], inputs=[T(1, 2, 4, 4)], **LOOSE)
layer("nn.PixelShuffle", 2, inputs=[T(2, 8, 3, 3)])
layer("nn.PixelUnshuffle", 2, inputs=[T(2, 2, 4, 4)])
layer("nn.ChannelShuffle", 3, inputs=[T(2, 6, 3, 3)])
layer("nn.Unfold", 3, inputs=[T(2, 3, 5, 5)])
layer("nn.Fold", [4, 4], 2, strides=2, inputs=[T(2, 12, 4)])

# ------------------------------------------------------------------------------------ recurrent

for name in ("SimpleRNN", "LSTM", "GRU"):
    layer(f"nn.{name}", 3, 4, inputs=[T(2, 5, 3)], **LOOSE)
    layer(f"nn.{name}", 3, 4, num_layers=2, inputs=[T(2, 5, 3)], **LOOSE)
    layer(f"nn.{name}", 3, 4, direction="bidirect", inputs=[T(2, 5, 3)], **LOOSE)
    layer(f"nn.{name}", 3, 4, time_major=True, inputs=[T(5, 2, 3)], **LOOSE)
    layer(f"nn.{name}", 3, 4, inputs=[T(2, 5, 3), None, V([5, 3], "int64")], **LOOSE)
layer("nn.SimpleRNN", 3, 4, activation="relu", inputs=[T(2, 5, 3)], **LOOSE)
layer("nn.GRU", 3, 4, inputs=[T(2, 5, 3), T(1, 2, 4)], **LOOSE)
layer("nn.LSTM", 3, 4, inputs=[T(2, 5, 3), (T(1, 2, 4), T(1, 2, 4))], **LOOSE)
layer(
    "nn.LSTM", 3, 4, num_layers=2, direction="bidirect", dropout=0.0, inputs=[T(2, 5, 3)], **LOOSE
)
layer("nn.SimpleRNNCell", 3, 4, inputs=[T(2, 3), T(2, 4)], **LOOSE)
layer("nn.LSTMCell", 3, 4, inputs=[T(2, 3), (T(2, 4), T(2, 4))], **LOOSE)
layer("nn.GRUCell", 3, 4, inputs=[T(2, 3), T(2, 4)], **LOOSE)
layer("nn.GRUCell", 3, 4, inputs=[T(2, 3)], **LOOSE)
layer_fn("RNN-of-cell", lambda p: p.nn.RNN(p.nn.GRUCell(3, 4)), [T(2, 5, 3)], **LOOSE)
layer_fn("RNN-reversed", lambda p: p.nn.RNN(p.nn.SimpleRNNCell(3, 4), is_reverse=True), [T(2, 5,
     3)],
         **LOOSE)  # fmt: skip
layer_fn(
    "BiRNN", lambda p: p.nn.BiRNN(p.nn.GRUCell(3, 4), p.nn.GRUCell(3, 4)), [T(2, 5, 3)], **LOOSE
)

# ------------------------------------------------------------------------------------ attention

layer("nn.MultiHeadAttention", 8, 2, inputs=[T(2, 3, 8)], **LOOSE)
layer("nn.MultiHeadAttention", 8, 2, inputs=[T(2, 3, 8), T(2, 5, 8), T(2, 5, 8)], **LOOSE)
layer(
    "nn.MultiHeadAttention",
    8,
    2,
    kdim=6,
    vdim=4,
    inputs=[T(2, 3, 8), T(2, 5, 6), T(2, 5, 4)],
    **LOOSE,
)
layer("nn.MultiHeadAttention", 8, 2, need_weights=True, inputs=[T(2, 3, 8)], **LOOSE)
layer("nn.MultiHeadAttention", 8, 2,
      inputs=[T(2, 3, 8), T(2, 3, 8), T(2, 3, 8), T(2, 2, 3, 3, grad=False)], **LOOSE)  # fmt: skip
for before in (False, True):
    layer("nn.TransformerEncoderLayer", 8, 2, 16, dropout=0.0, normalize_before=before,
          inputs=[T(2, 3, 8)], **LOOSE)  # fmt: skip
    layer("nn.TransformerDecoderLayer", 8, 2, 16, dropout=0.0, normalize_before=before,
          inputs=[T(2, 3, 8), T(2, 5, 8)], **LOOSE)  # fmt: skip
layer("nn.TransformerEncoderLayer", 8, 2, 16, dropout=0.1, activation="gelu",
      inputs=[T(2, 3, 8), T(2, 2, 3, 3, grad=False)], _eval=True, **LOOSE)  # fmt: skip
layer_fn("TransformerEncoder", lambda p: p.nn.TransformerEncoder(
    p.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), 2, p.nn.LayerNorm(8)), [T(2, 3, 8)],
    _rtol=1e-3, _atol=1e-3)  # fmt: skip
layer_fn("TransformerDecoder", lambda p: p.nn.TransformerDecoder(
    p.nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), 2), [T(2, 3, 8), T(2, 5, 8)],
    _rtol=1e-3, _atol=1e-3)  # fmt: skip
layer("nn.Transformer", 8, 2, 1, 1, 16, dropout=0.0, inputs=[T(2, 3, 8), T(2, 4, 8)], _rtol=1e-3,
      _atol=1e-3)  # fmt: skip

# ------------------------------------------------------------------------------------- networks


def _mlp(p):
    return p.nn.Sequential(p.nn.Linear(4, 8), p.nn.ReLU(), p.nn.Linear(8, 3))


def _lenet(p):
    return p.nn.Sequential(
        p.nn.Conv2D(1, 4, 3, padding=1), p.nn.BatchNorm2D(4), p.nn.ReLU(), p.nn.MaxPool2D(2, 2),
        p.nn.Conv2D(4, 6, 3), p.nn.ReLU(), p.nn.MaxPool2D(2, 2), p.nn.Flatten(), p.nn.Linear(6, 5),
    )  # fmt: skip


def _named_sequential(p):
    return p.nn.Sequential(("first", p.nn.Linear(4, 4)), ("second", p.nn.Tanh()))


def _residual(p):
    class Residual(p.nn.Layer):
        def __init__(self):
            super().__init__()
            self.body = p.nn.Sequential(p.nn.Linear(4, 4), p.nn.GELU())
            self.norm = p.nn.LayerNorm(4)
            self.gate = self.create_parameter(
                [4], default_initializer=p.nn.initializer.Constant(0.5)
            )
            self.register_buffer("offset", p.full([4], 0.1))

        def forward(self, x):
            return self.norm(x + self.gate * self.body(x)) + self.offset

    return Residual()


def _shared_weights(p):
    class Tied(p.nn.Layer):
        def __init__(self):
            super().__init__()
            self.table = p.nn.Embedding(6, 4)

        def forward(self, ids):
            hidden = self.table(ids).mean(axis=1)
            return p.matmul(hidden, self.table.weight, transpose_y=True)

    return Tied()


def _layer_list(p):
    class Stack(p.nn.Layer):
        def __init__(self):
            super().__init__()
            self.layers = p.nn.LayerList([p.nn.Linear(4, 4) for _ in range(3)])
            self.scales = p.nn.ParameterList(
                [p.create_parameter([1], "float32",
                default_initializer=p.nn.initializer.Constant(1.0))
                 for _ in range(3)]
            )  # fmt: skip
            self.heads = p.nn.LayerDict({"a": p.nn.Linear(4, 2), "b": p.nn.Linear(4, 1)})

        def forward(self, x):
            for inner, scale in zip(self.layers, self.scales, strict=True):
                x = p.tanh(inner(x)) * scale
            return self.heads["a"](x), self.heads["b"](x)

    return Stack()


layer_fn("mlp", _mlp, [T(2, 4)])
layer_fn("lenet", _lenet, [T(2, 1, 10, 10)], _rtol=1e-3, _atol=1e-3)
layer_fn("lenet-eval", _lenet, [T(2, 1, 10, 10)], _eval=True, _rtol=1e-3, _atol=1e-3)
layer_fn("named-sequential", _named_sequential, [T(2, 4)])
layer_fn("residual-block", _residual, [T(3, 4)], **LOOSE)
layer_fn("tied-embedding", _shared_weights, [I(3, 5, high=6)], **LOOSE)
layer_fn("containers", _layer_list, [T(2, 4)], **LOOSE)

layer_fn("weight-norm", lambda p: p.nn.utils.weight_norm(p.nn.Linear(3, 4)), [T(2, 3)], **LOOSE)
layer_fn("weight-norm-dim", lambda p: p.nn.utils.weight_norm(p.nn.Conv1D(2, 3, 2), dim=1), [T(2,
     2, 4)],
         **LOOSE)  # fmt: skip
layer_fn("spectral-norm", lambda p: p.nn.utils.spectral_norm(p.nn.Linear(3, 4)), [T(2, 3)],
     _eval=True,
         _check_grad=False, **LOOSE)  # fmt: skip
