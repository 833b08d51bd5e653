"""`bireme demo`, shortened: it writes its files and the reloaded model agrees."""

from __future__ import annotations

from bireme import cli


def test_demo(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("bireme.demo.TARGET", 0.9)
    folder = tmp_path / "out"
    assert cli.main(["demo", "--epochs", "2", "--output", str(folder)]) == 0
    out, err = capfd.readouterr()
    assert "1000 of 1000 predictions identical" in out
    assert "160/160" in err
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "model.safetensors").stat().st_size > 10_000


def test_demo_that_misses_its_aims_says_so(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("bireme.demo.TARGET", 1.01)
    assert cli.main(["demo", "--epochs", "1", "--output", str(tmp_path)]) == 1
    assert "missed its aims" in capfd.readouterr().err


def test_demo_without_its_packages(capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main(["demo"]) == 1
    assert "pip install 'bireme[demo]'" in capsys.readouterr().err
