"""Comparing two runs, for example one in float32 and one in float16, op by op.

The runs were recorded by `TensorCheckerConfig(output_dir=..., debug_mode=DebugMode.CHECK_ALL)`.
"""

from __future__ import annotations

import csv
import io
import os
import re
import zipfile
from collections import defaultdict
from typing import Any
from xml.sax.saxutils import escape

from bireme.core.errors import InvalidArgument
from bireme.io import atomic

_FIGURES = ("numel", "num_nan", "num_inf", "num_zero", "max", "min", "mean")
_LINE = re.compile(r"op=(?P<op>[^,\]]*), tensor=(?P<tensor>[^,\]]*), dtype=(?P<dtype>[^,\]]*)\]")
_HALF_MAX = 65504.0


def compare_accuracy(
    dump_path: str,
    another_dump_path: str,
    output_filename: str,
    loss_scale: float = 1,
    dump_all_tensors: bool = False,
) -> None:
    """Write a table with the figures of both runs side by side and what is odd about them.

    Both folders hold reports of the tensor checker. Gradients of the second run are divided by
    its `loss_scale`. The file is a spreadsheet (.xlsx) or a .csv.
    """
    if dump_all_tensors:
        raise InvalidArgument("[compare_accuracy] the figures are compared, not whole tensors")
    first, second = _read(dump_path), _read(another_dump_path)
    sides = [f"{side}.{name}" for side in ("1", "2") for name in ("dtype", *_FIGURES)]
    rows: list[list[Any]] = [["op", "call", *sides, "remark"]]
    keys = list(dict.fromkeys([*first, *second]))
    for op, number in keys:
        a, b = first.get((op, number), {}), second.get((op, number), {})
        if loss_scale != 1 and op.endswith("_grad"):
            b = {k: v / loss_scale if k in ("max", "min", "mean") else v for k, v in b.items()}
        cells = [side.get(name, "") for side in (a, b) for name in ("dtype", *_FIGURES)]
        rows.append([op, number, *cells, _remark(a, b)])
    os.makedirs(os.path.dirname(os.path.abspath(output_filename)), exist_ok=True)
    if output_filename.endswith(".csv"):
        text = io.StringIO(newline="")
        csv.writer(text).writerows(rows)
        with atomic.replacing(output_filename) as file:
            file.write(text.getvalue().encode())
    else:
        _write_xlsx(output_filename, rows)


def _read(folder: str) -> dict[tuple[str, int], dict[str, Any]]:
    """Figures by op and number of its call."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    if not any(n.startswith("worker_") for n in names):
        raise InvalidArgument(
            f"[compare_accuracy] there is no report of the tensor checker in {folder!r}"
        )
    found: dict[tuple[str, int], dict[str, Any]] = {}
    seen: dict[str, int] = defaultdict(int)
    for name in names:
        if not name.startswith("worker_"):
            continue
        with open(os.path.join(folder, name)) as file:
            for line in file:
                match = _LINE.search(line)
                if match is None:
                    continue
                figures = dict.fromkeys(_FIGURES, 0.0)
                figures.update(
                    {
                        k: float(v)
                        for k, v in re.findall(r"(\w+)=(-?[\w.+-]+)", line)
                        if k in figures
                    }
                )
                op = match["op"]
                found[op, seen[op]] = {"dtype": match["dtype"], **figures}
                seen[op] += 1
    return found


def _remark(a: dict[str, Any], b: dict[str, Any]) -> str:
    if not a or not b:
        return "only in run 1" if a else "only in run 2"
    bad = [i for i, side in ((1, a), (2, b)) if side["num_nan"] or side["num_inf"]]
    if bad:
        return f"NaN or infinity in run {' and '.join(map(str, bad))}"
    if max(abs(a["max"]), abs(a["min"])) > _HALF_MAX:
        return "beyond float16 in run 1"
    size = max(abs(a["mean"]), 1e-6)
    return f"means differ by {abs(a['mean'] - b['mean']) / size:.1e}" if a != b else ""


def _write_xlsx(path: str, rows: list[list[Any]]) -> None:
    """The smallest workbook that spreadsheet programs read."""
    spreadsheet = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    package = "http://schemas.openxmlformats.org/package/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    head = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
    kinds = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    sheet = "".join(f"<row>{''.join(map(_cell, row))}</row>" for row in rows)
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        '<Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kinds}.sheet.main+xml"/>'
        f'<Override PartName="/xl/sheet.xml" ContentType="{kinds}.worksheet+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{office}/worksheet" Target="sheet.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{spreadsheet}" xmlns:r="{office}"><sheets>'
        '<sheet name="compare" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/sheet.xml": f'<worksheet xmlns="{spreadsheet}"><sheetData>{sheet}</sheetData>'
        "</worksheet>",
    }
    with (
        atomic.replacing(path) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, text in parts.items():
            archive.writestr(name, head + text)


def _cell(value: Any) -> str:
    if isinstance(value, int | float) and value == value and abs(value) != float("inf"):
        return f"<c><v>{value}</v></c>"
    return f'<c t="inlineStr"><is><t>{escape(str(value))}</t></is></c>'
