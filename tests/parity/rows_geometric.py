"""paddle.geometric and paddle.text's decoder."""

from __future__ import annotations

from tests.parity.table import I, T, V, case, case_fn, raises

G = "geometric."
SRC, DST = V([0, 1, 2, 0, 1], "int64"), V([1, 2, 1, 0, 1], "int64")
IDS = V([0, 0, 2, 2], "int64")

for _reduce in ("sum", "mean", "max", "min"):
    case(G + "send_u_recv", T(3, 2), SRC, DST, _reduce)
    case(G + "send_u_recv", T(3, 2), SRC, DST, _reduce, out_size=5)
    case(G + "send_u_recv", I(3, 2), SRC, DST, _reduce)
    case(G + "send_ue_recv", T(3, 2), T(5, 2), SRC, DST, "mul", _reduce)
    case(G + f"segment_{_reduce}", T(4, 3), IDS)
    case(G + f"segment_{_reduce}", T(4, 2, 2), IDS)
    case(G + f"segment_{_reduce}", I(4, 3), IDS)
case(G + "send_u_recv", T(3, 2), V([0, 1], "int32"), V([1, 1], "int32"))
case(G + "send_u_recv", T(3, 2, 2), SRC, DST)
for _message in ("add", "sub", "mul", "div"):
    case(G + "send_ue_recv", T(3, 2), T(5, 2, low=1, high=2), SRC, DST, _message)
    case(G + "send_uv", T(3, 2), T(3, 2, low=1, high=2), SRC, DST, _message)
case(G + "send_ue_recv", T(3, 2), T(5, 1), SRC, DST, "add", "mean")
case(G + "send_ue_recv", T(3, 2), T(5), SRC, DST, "mul")
case(G + "send_uv", T(3, 2, 1), T(3, 4), SRC, DST, "mul")
case(G + "reindex_graph", V([0, 1, 2], "int64"), V([8, 9, 0, 4, 7, 6, 7], "int64"),
     V([2, 3, 2], "int32"))  # fmt: skip
case(G + "reindex_graph", V([5, 1], "int32"), V([5, 5, 9], "int32"), V([1, 2], "int32"))
case(G + "reindex_heter_graph", V([0, 1, 2], "int64"),
     [V([8, 9, 0, 4, 7, 6, 7], "int64"), V([0, 2, 3, 5, 1], "int64")],
     [V([2, 3, 2], "int32"), V([1, 3, 1], "int32")])  # fmt: skip
case_fn("sample_neighbors-few",
        lambda p, row, ptr, n: p.geometric.sample_neighbors(row, ptr, n, sample_size=9),
        V([3, 7, 0, 9, 1], "int64"), V([0, 2, 4, 5], "int64"), V([2, 0], "int64"))  # fmt: skip
raises(G + "send_u_recv", T(3, 2), SRC, DST, "prod")
raises(G + "send_ue_recv", T(3, 2), T(5, 2), SRC, DST, "pow")
raises(G + "send_uv", T(3, 2), T(3, 2), SRC, DST, "pow")
raises(G + "segment_sum", T(3, 2), V([2, 0, 1], "int64"))
raises(G + "sample_neighbors", V([3, 7], "int64"), V([0, 2], "int64"), V([0], "int64"),
       return_eids=True)  # fmt: skip
TIES = V([[1.0, 2.0], [1.0, 4.0], [1.0, 4.0], [0.0, 4.0]], grad=True)
case(G + "segment_max", TIES, IDS, _finite_difference=False)
case(G + "segment_min", TIES, IDS, _finite_difference=False)
case(G + "send_u_recv", TIES, V([0, 1, 2], "int64"), V([0, 0, 0], "int64"), "max",
     _finite_difference=False)  # fmt: skip

for _ends in (True, False):
    for _lengths in ([5, 3, 1], [3, 2, 1]):
        case("text.viterbi_decode", T(3, 5, 4, grad=False), T(4, 4, grad=False),
             V(_lengths, "int64"), _ends)  # fmt: skip
case("text.viterbi_decode", T(2, 1, 3, grad=False), T(3, 3, grad=False), V([1, 1], "int64"))
case("text.viterbi_decode", T(2, 4, 3, dtype="float64", grad=False),
     T(3, 3, dtype="float64", grad=False), V([4, 2], "int64"))  # fmt: skip
case_fn("ViterbiDecoder", lambda p, x, t, n: p.text.ViterbiDecoder(t, False)(x, n),
        T(3, 5, 4, grad=False), T(4, 4, grad=False), V([5, 1, 2], "int64"))  # fmt: skip
raises("text.viterbi_decode", T(3, 5, 4), T(4, 4), V([5, 1, 2], "int32"))
