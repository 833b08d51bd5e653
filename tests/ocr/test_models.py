"""The catalogue: what is packaged is there, what is fetched is checked."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bireme.ocr import OcrError, models
from bireme.ocr.fetch import Member, extracted


def test_the_smallest_nets_are_part_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(models.LOCAL, "/no/such/folder")
    assert models.usual_tier() == "tiny"
    tier = models.TIERS["tiny"]
    assert models.find(tier.detector).tiled
    found = models.find(tier.recogniser)
    assert len(found.charset) == 6905
    assert found.charset[-1] == " "
    with pytest.raises(OcrError, match="bireme ocr pull small"):
        models.find("ppocr-v6-small-detect")
    with pytest.raises(OcrError, match="is no model"):
        models.find("x")


def test_dictionaries() -> None:
    assert models.charset_of("a\nb\r\n\u3000\n") == ("a", "b", "\u3000", " ")
    assert models.charset_of("a") == ("a", " ")


def test_every_entry_names_a_file_its_digest_and_its_licence() -> None:
    for model in models.MODELS.values():
        assert model.licence
        for member in (model.weights, model.charset):
            if member is not None:
                assert "==" in member.package or re.fullmatch(r"npm:\S+@\d\S+", member.package)
                assert len(bytes.fromhex(member.sha256)) == 32


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, bytes]:
    """A registry with one package, and pip's part played by a function."""
    members = {"toy/net.onnx": b"not a net"}

    def run(command: list[str], **options: Any) -> Any:
        folder = Path(command[command.index("--dest") + 1])
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(folder / "toy-1.0-py3-none-any.whl", "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv(models.LOCAL, str(tmp_path / "kept"))
    return members


def entry(monkeypatch: pytest.MonkeyPatch, sha256: str, path: str = "toy/net.onnx") -> None:
    member = models.Member("toy==1.0", path, sha256)
    model = replace(models.MODELS["ppocr-v6-tiny-detect"], name="toy", weights=member)
    monkeypatch.setitem(models.MODELS, "toy", model)


def test_another_file_is_refused(
    registry: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entry(monkeypatch, "0" * 64)
    with pytest.raises(OcrError, match="is not the file that is known"):
        models.pull(["toy"])
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_missing_member(registry: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    entry(monkeypatch, "0" * 64, "toy/other.onnx")
    with pytest.raises(OcrError, match="cannot be taken out"):
        models.pull(["toy"])


def test_a_file_that_is_no_net(
    registry: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entry(monkeypatch, hashlib.sha256(registry["toy/net.onnx"]).hexdigest())
    with pytest.raises(OcrError, match="cannot be converted"):
        models.pull(["toy"])
    assert not models.is_there("toy")


def test_a_package_of_npm_is_asked_for_without_its_scripts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = b"weights"
    asked: list[list[str]] = []

    def run(command: list[str], **options: Any) -> Any:
        asked.append(command)
        target = Path(command[command.index("--pack-destination") + 1]) / "toy-1.0.tgz"
        with tarfile.open(target, "w:gz") as archive:
            entry = tarfile.TarInfo("package/net.onnx")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    digest = hashlib.sha256(data).hexdigest()
    path = extracted(Member("npm:toy@1.0", "package/net.onnx", digest), tmp_path)
    assert path.read_bytes() == data
    assert asked[0][:2] == ["/bin/npm", "pack"]
    assert "--ignore-scripts" in asked[0]
    assert asked[0][-1] == "toy@1.0"
    with pytest.raises(OcrError, match="not the file that is known"):
        extracted(Member("npm:toy@1.0", "package/net.onnx", "0" * 64), tmp_path)
    with pytest.raises(OcrError, match="cannot be taken out"):
        extracted(Member("npm:toy@1.0", "package/other", digest), tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(OcrError, match="npm, which is not on this machine"):
        extracted(Member("npm:other@1.0", "package/net.onnx", digest), tmp_path)
