"""A first handful of rows; the families have files of their own."""

from tests.parity.table import T, case, raises

case("add", T(3, 4), T(4))
case("multiply", T(3, 1), T(4))
case("matmul", T(2, 3), T(3, 4))
raises("matmul", T(2, 3), T(2, 3))
raises("add", T(2, 3), T(4))
