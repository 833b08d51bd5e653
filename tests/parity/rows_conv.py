"""Convolutions in one to three dimensions, transposed, grouped, dilated; every padding form."""

from tests.parity.table import T, case, half, layer

F = "nn.functional."
LOOSE = {"_rtol": 1e-4, "_atol": 1e-4}

case(F + "conv1d", T(2, 3, 8), T(4, 3, 3), **LOOSE)
case(F + "conv1d", T(2, 3, 8), T(4, 3, 3), T(4), stride=2, padding=1, **LOOSE)
case(F + "conv1d", T(2, 4, 8), T(4, 2, 3), groups=2, dilation=2, **LOOSE)
case(F + "conv1d", T(2, 8, 3), T(4, 3, 3), data_format="NLC", **LOOSE)
case(F + "conv1d", T(2, 3, 8), T(4, 3, 3), padding="SAME", **LOOSE)
case(F + "conv1d", T(2, 3, 8), T(4, 3, 3), padding="VALID", **LOOSE)
case(F + "conv1d", T(2, 3, 8), T(4, 3, 3), padding=[1, 2], **LOOSE)

case(F + "conv2d", T(2, 3, 6, 6), T(4, 3, 3, 3), **LOOSE)
case(F + "conv2d", T(2, 3, 6, 6), T(4, 3, 3, 3), T(4), padding=1, **LOOSE)
case(F + "conv2d", T(2, 3, 6, 6), T(4, 3, 3, 3), stride=2, **LOOSE)
case(F + "conv2d", T(2, 3, 6, 7), T(4, 3, 3, 2), stride=[2, 1], **LOOSE)
case(F + "conv2d", T(2, 3, 7, 7), T(4, 3, 3, 3), dilation=2, **LOOSE)
case(F + "conv2d", T(2, 3, 6, 6), T(4, 3, 3, 3), padding=[1, 2], **LOOSE)
case(F + "conv2d", T(2, 3, 6, 6), T(4, 3, 3, 3), padding=[0, 1, 2, 1], **LOOSE)
case(F + "conv2d", T(2, 3, 6, 6), T(4, 3, 3, 3), padding=[[0, 0], [0, 0], [1, 2], [0, 1]], **LOOSE)
case(F + "conv2d", T(2, 3, 7, 6), T(4, 3, 3, 3), padding="SAME", stride=2, **LOOSE)
case(F + "conv2d", T(2, 3, 7, 6), T(4, 3, 3, 3), padding="VALID", **LOOSE)
case(F + "conv2d", T(2, 4, 6, 6), T(4, 2, 3, 3), groups=2, **LOOSE)
case(F + "conv2d", T(2, 4, 6, 6), T(8, 1, 3, 3), T(8), groups=4, padding=1, **LOOSE)
case(F + "conv2d", T(2, 6, 6, 3), T(4, 3, 3, 3), T(4), data_format="NHWC", **LOOSE)
case(F + "conv2d", T(2, 3, 6, 6), T(4, 3, 1, 1), **LOOSE)
case(F + "conv2d", T(2, 3, 5, 5, dtype="float64"), T(4, 3, 3, 3, dtype="float64"))
half(F + "conv2d", T(2, 3, 5, 5), T(4, 3, 3, 3), _atol=0.15)
case(F + "conv2d", T(0, 3, 6, 6), T(4, 3, 3, 3))

case(F + "conv3d", T(1, 2, 4, 4, 4), T(3, 2, 2, 2, 2), **LOOSE)
case(F + "conv3d", T(1, 2, 4, 4, 4), T(3, 2, 3, 3, 3), T(3), stride=2, padding=1, **LOOSE)
case(F + "conv3d", T(1, 2, 4, 4, 4), T(2, 1, 2, 2, 2), groups=2, **LOOSE)
case(F + "conv3d", T(1, 4, 4, 4, 2), T(3, 2, 2, 2, 2), data_format="NDHWC", **LOOSE)

case(F + "conv1d_transpose", T(2, 3, 5), T(3, 4, 3), **LOOSE)
case(F + "conv1d_transpose", T(2, 3, 5), T(3, 4, 3), T(4), stride=2, padding=1, output_padding=1,
     **LOOSE)  # fmt: skip
case(F + "conv1d_transpose", T(2, 4, 5), T(4, 2, 3), groups=2, dilation=2, **LOOSE)
case(F + "conv2d_transpose", T(2, 3, 4, 4), T(3, 4, 3, 3), **LOOSE)
case(F + "conv2d_transpose", T(2, 3, 4, 4), T(3, 4, 3, 3), T(4), stride=2, padding=1, **LOOSE)
case(F + "conv2d_transpose", T(2, 3, 4, 4), T(3, 4, 3, 3), stride=2, output_padding=1, **LOOSE)
case(F + "conv2d_transpose", T(2, 3, 4, 4), T(3, 4, 3, 3), stride=2, output_size=[10, 9], **LOOSE)
case(F + "conv2d_transpose", T(2, 4, 4, 4), T(4, 2, 3, 3), groups=2, **LOOSE)
case(F + "conv2d_transpose", T(2, 3, 4, 4), T(3, 4, 3, 3), dilation=2, **LOOSE)
case(F + "conv2d_transpose", T(2, 3, 4, 4), T(3, 4, 3, 3), padding="SAME", stride=2, **LOOSE)
case(F + "conv2d_transpose", T(2, 3, 4, 4), T(3, 4, 3, 3), padding=[0, 1, 1, 0], **LOOSE)
case(F + "conv2d_transpose", T(2, 4, 4, 3), T(3, 4, 3, 3), data_format="NHWC", **LOOSE)
case(F + "conv3d_transpose", T(1, 2, 3, 3, 3), T(2, 3, 2, 2, 2), **LOOSE)
case(F + "conv3d_transpose", T(1, 2, 3, 3, 3), T(2, 3, 2, 2, 2), T(3), stride=2, padding=1, **LOOSE)

layer("nn.Conv1D", 3, 4, 3, padding=1, inputs=[T(2, 3, 8)], **LOOSE)
layer("nn.Conv2D", 3, 4, 3, inputs=[T(2, 3, 6, 6)], **LOOSE)
layer("nn.Conv2D", 4, 4, 3, stride=2, padding=1, groups=2, bias_attr=False, inputs=[T(2, 4, 6, 6)],
      **LOOSE)  # fmt: skip
layer("nn.Conv2D", 3, 4, (3, 2), padding=1, padding_mode="reflect", inputs=[T(2, 3, 6, 6)], **LOOSE)
layer("nn.Conv2D", 3, 4, 3, padding=1, padding_mode="circular", inputs=[T(2, 3, 6, 6)], **LOOSE)
layer("nn.Conv2D", 3, 4, 3, data_format="NHWC", inputs=[T(2, 6, 6, 3)], **LOOSE)
layer("nn.Conv3D", 2, 3, 2, inputs=[T(1, 2, 4, 4, 4)], **LOOSE)
layer("nn.Conv1DTranspose", 3, 4, 3, stride=2, inputs=[T(2, 3, 5)], **LOOSE)
layer("nn.Conv2DTranspose", 3, 4, 3, stride=2, padding=1, inputs=[T(2, 3, 4, 4)], **LOOSE)
layer("nn.Conv3DTranspose", 2, 3, 2, inputs=[T(1, 2, 3, 3, 3)], **LOOSE)
