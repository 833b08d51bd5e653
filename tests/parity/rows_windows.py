"""Pooling windows that are larger than what they look at: cut off, empty, or refused."""

from tests.parity.table import T, case, raises

F = "nn.functional."
# size, kernel, stride, padding: Paddle divides towards zero, so that the window stays
CUT = [(1, 2, 2, 0), (2, 3, 2, 0), (1, 3, 3, 0), (1, 3, 4, 0), (1, 4, 2, 1), (1, 5, 3, 1)]

for size, kernel, stride, padding in CUT:
    for ceil in (False, True):
        options = {"stride": stride, "padding": padding, "ceil_mode": ceil}
        case(F + "max_pool1d", T(2, 3, size), kernel, **options)
        case(F + "avg_pool1d", T(2, 3, size), kernel, **options)
        case(F + "avg_pool1d", T(2, 3, size), kernel, exclusive=False, **options)
case(F + "max_pool2d", T(2, 3, 1, 5), 2, return_mask=True)
case(F + "max_pool2d", T(2, 3, 1, 5), 2, data_format="NCHW", ceil_mode=True)
case(F + "max_pool3d", T(1, 2, 1, 4, 1), 2)
case(F + "avg_pool2d", T(2, 1, 5, 3), 2, data_format="NHWC")
case(F + "avg_pool2d", T(2, 3, 1, 5), 2, divisor_override=3)
case(F + "avg_pool2d", T(2, 3, 5, 5), 3, stride=2, padding=1, divisor_override=4)
case(F + "avg_pool2d", T(2, 3, 5, 5), 3, padding=1, exclusive=False, divisor_override=4)
case(F + "avg_pool3d", T(1, 2, 3, 3, 3), 3, padding=1, divisor_override=5)
case(F + "lp_pool2d", T(2, 3, 1, 5, low=0.1), 2.0, 2)
case(F + "max_pool1d", T(2, 3, 1), 2, stride=1)  # no window at all
case(F + "avg_pool2d", T(2, 3, 1, 5), 3, stride=2)
raises(F + "max_pool2d", T(2, 3, 1, 5), 5, stride=2)
raises(F + "avg_pool2d", T(2, 3, 1, 5), 5, stride=2)
