"""Reading text in images: `bireme.ocr`.

    from bireme import ocr

    page = ocr.read("scan.png")[0]
    print(page.text, page.markdown)

Needs the extra `ocr` (Pillow, pypdfium2, SciPy). Works without a network.
"""

from bireme.ocr.errors import OcrError
from bireme.ocr.models import pull
from bireme.ocr.reader import Reader, read
from bireme.ocr.result import Block, Cell, Document, Field, Line, Page, Table, Word

__all__ = [
    "Block",
    "Cell",
    "Document",
    "Field",
    "Line",
    "OcrError",
    "Page",
    "Reader",
    "Table",
    "Word",
    "pull",
    "read",
]
