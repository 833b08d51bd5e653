"""After the tests, a table of how far each client model is from the real Paddle."""

from __future__ import annotations

from typing import Any

WIDTHS = {"package": 13, "model": 22, "out 64": 7, "grad 64": 8, "out 32": 14, "grad 32": 14}


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [r for found in ("passed", "failed") for r in terminalreporter.getreports(found)]
    rows = [value for r in reports for key, value in r.user_properties if key == "client"]
    if not rows:
        return
    write = terminalreporter.write_line
    terminalreporter.section("clients: distance from Paddle's float64")
    write("results and gradients of all parameters, as a share of the tensor's largest element;")
    write("float32: the median of five inputs, and in brackets the largest of Paddle's own;")
    write("-: the package is for float32 only, so Paddle's float32 is what it is compared with")
    write(" ".join(f"{name:{width}}" for name, width in WIDTHS.items()).rstrip())
    for row in sorted(rows, key=lambda r: (r["package"], r["model"])):
        write(" ".join(f"{row[name]:{width}}" for name, width in WIDTHS.items()).rstrip())
