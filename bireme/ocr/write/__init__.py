"""What a document can be written as: `FORMATS`, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from bireme.ocr.errors import OcrError
from bireme.ocr.image import Source
from bireme.ocr.result import Document


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write a document: the extension of its files, and where its function is."""

    name: str
    extension: str
    place: str
    binary: bool = False  # shows the images, too: not for a terminal

    def write(self, document: Document, source: Source) -> bytes:
        """The contents of a file. `source` is what was read; some formats show it."""
        module, _, function = self.place.partition(":")
        make: Callable[..., str | bytes] = getattr(import_module(f"{__name__}.{module}"), function)
        made = make(document, source) if self.binary else make(document)
        return made if isinstance(made, bytes) else made.encode()


FORMATS = {
    f.name: f
    for f in (
        Format("text", ".txt", "plain:to_text"),
        Format("markdown", ".md", "markdown:to_markdown"),
        Format("html", ".html", "html:document_to_html"),
        Format("json", ".json", "as_json:to_json"),
        Format("hocr", ".hocr", "hocr:to_hocr"),
        Format("alto", ".xml", "alto:to_alto"),
        Format("pdf", ".pdf", "pdf:to_pdf", binary=True),
        Format("picture", ".png", "picture:to_picture", binary=True),
    )
}
SHORT = {"md": "markdown", "txt": "text", "png": "picture"}


def find(name: str) -> Format:
    """The format of this name."""
    found = FORMATS.get(SHORT.get(name, name))
    if found is None:
        raise OcrError(f"format {name!r}", f"there is none. Take one of {', '.join(FORMATS)}")
    return found
