"""The command line and the `paddle` alias, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from bireme import cli
from bireme.host import config


def run(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "bireme.cli", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "BIREME_COMPILE": "never"},
    )


def script(tmp_path, text, name="script.py"):
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    return str(path)


def test_info(capsys):
    assert cli.main(["info"]) == 0
    out = capsys.readouterr().out
    for word in ("bireme", "jax", "devices", "cpu:0", "cache folder", "BIREME_COMPILE"):
        assert word in out


def test_run_resolves_paddle_to_bireme(tmp_path):
    (tmp_path / "helper.py").write_text("import paddle\ndouble = lambda x: paddle.add(x, x)\n")
    path = script(
        tmp_path,
        """
        import sys
        import paddle
        import paddle.nn as nn
        import paddle.nn.functional as F
        from paddle.io import DataLoader
        from paddle import to_tensor
        from helper import double
        import bireme
        assert DataLoader is bireme.io.DataLoader
        assert paddle.nn.functional.relu is F.relu is nn.functional.relu
        assert __name__ == "__main__"
        print(double(to_tensor([1.5])).numpy(), sys.argv[1:], F.relu(to_tensor([-1.0])).item())
        """,
    )
    result = run("run", path, "--flag", "x", cwd="/")
    assert result.stderr == ""
    assert result.stdout == "[3.] ['--flag', 'x'] 0.0\n"


def test_processes_of_a_script_see_bireme_too(tmp_path):
    """Workers read the script's own classes, and others', with `import paddle` at their top."""
    (tmp_path / "others.py").write_text("import paddle\nTensor = paddle.Tensor\n")
    path = script(
        tmp_path,
        """
        import os
        import paddle
        import others
        import bireme

        class Ones(paddle.io.Dataset):
            def __len__(self):
                return 2
            def __getitem__(self, i):
                assert others.Tensor is paddle.Tensor is bireme.Tensor
                return {"x": paddle.full([2], i + 1.0), "same": __name__ == "__mp_main__"}

        def job(n):
            print(n, paddle.Tensor is bireme.Tensor, flush=True)

        if __name__ == "__main__":
            os.chdir("/")
            for batch in paddle.io.DataLoader(Ones(), batch_size=2, num_workers=1):
                print(batch["x"].tolist(), batch["same"].tolist(), flush=True)
            paddle.distributed.spawn(job, (7,), nprocs=1, backend="gloo")
        """,
    )
    result = run("run", os.path.basename(path), cwd=tmp_path)
    assert result.stderr == ""
    assert result.stdout == "[[1.0, 1.0], [2.0, 2.0]] [True, True]\n7 True\n"


def test_a_script_is_found_after_chdir(tmp_path):
    """As under Python itself, `__file__` and the source's lines do not depend on the folder."""
    script(
        tmp_path,
        """
        import inspect, os, sys
        import paddle

        @paddle.jit.to_static
        def f(x):
            if x.sum() > 0:  # becomes a branch in the graph only if the source is found
                return x + 1
            return x - 1

        os.chdir("/")
        spec = paddle.static.InputSpec([2], "float32")
        paddle.jit.save(f, sys.argv[1], input_spec=[spec])
        loaded = paddle.jit.load(sys.argv[1])
        print(loaded(paddle.ones([2])).tolist(), loaded(-paddle.ones([2])).tolist())
        print(__file__, inspect.getsourcefile(f.__wrapped__ if hasattr(f, "__wrapped__") else f))
        print(__spec__ is not None, __package__, sys.argv[0])
        """,
    )
    result = run("run", "script.py", str(tmp_path / "saved"), cwd=tmp_path)
    path = str(tmp_path / "script.py")
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "[2.0, 2.0] [-2.0, -2.0]", f"{path} {path}", "True None script.py",
    ]  # fmt: skip


MODULE = """
import sys
import paddle
from . import helper

def job(n):
    print(n, helper.double(n), paddle.__name__, flush=True)

if __name__ == "__main__":
    print(__name__, __package__, __file__, sys.argv, helper.double(2), flush=True)
    paddle.distributed.spawn(job, (7,), nprocs=1, backend="gloo")
"""


@pytest.mark.parametrize("name", ["package", "package.train"])
def test_run_of_a_module(tmp_path, name):
    """As `python -m`: relative imports, packages with a `__main__`, processes of its own."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text("import paddle\n")
    (folder / "helper.py").write_text("import paddle\ndouble = lambda n: 2 * n\n")
    file = folder / ("__main__.py" if name == "package" else "train.py")
    file.write_text(MODULE)
    result = run("run", "-m", name, "-m", "--epochs", "3", cwd=tmp_path)
    assert result.stderr == ""
    first, second = result.stdout.splitlines()
    assert first == f"__main__ package {file} {[str(file), '-m', '--epochs', '3']} 4"
    assert second == "7 14 paddle"


def test_run_of_a_module_that_is_not_there(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    for name, message in (
        ("nothing_like_this", "there is no module 'nothing_like_this'"),
        ("package.nothing", "there is no module 'package.nothing'"),
        ("nothing_like_this.inner", "there is no module 'nothing_like_this.inner'"),
        ("package", "'package' is a package without a __main__ module"),
        ("sys", "'sys' has no Python code"),
    ):
        result = run("run", "-m", name, cwd=tmp_path)
        assert (result.returncode, result.stderr) == (2, f"bireme run: {message}\n")


def test_python_m_bireme(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "bireme", "run", script(tmp_path, "import paddle; print(__name__)")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (result.stdout, result.stderr) == ("__main__\n", "")
    shown = subprocess.run(
        [sys.executable, "-m", "bireme", "--help"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith("usage: bireme ")


def test_info_says_why_there_is_no_cache(capsys, monkeypatch, tmp_path):
    for folder, said in (("relative", "not an absolute path"), ("", "off")):
        monkeypatch.setattr(config, "cache_dir", folder)
        assert cli.main(["info"]) == 0
        (row,) = [r for r in capsys.readouterr().out.splitlines() if r.startswith("cache folder")]
        assert said in row


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("paddle.to_tensr", "paddle.to_tensr is not in Bireme; nearest: paddle.to_tensor"),
        ("from paddle.io import DataLoadr", "is not in Bireme; nearest: paddle.io.DataLoader"),
        ("import paddle.nothing.here", "paddle.nothing is not in Bireme"),
        ("paddle.DataLoader", "paddle.DataLoader is not in Bireme"),
        ("paddle.nn.functional.rellu", "is not in Bireme; nearest: paddle.nn.functional.relu"),
    ],
)  # fmt: skip
def test_run_names_what_is_missing(tmp_path, line, message):
    result = run("run", script(tmp_path, f"import paddle, paddle.io\n{line}\n"))
    assert result.returncode == 1
    assert message in result.stderr
    assert "script.py" in result.stderr


def test_alias_details(tmp_path):
    path = script(
        tmp_path,
        """
        from bireme import compat
        with compat.installed():
            import paddle
            from paddle.io import *
            assert DataLoader
            assert not hasattr(paddle, "nothing_like_this")
            assert "to_tensor" in dir(paddle)
            paddle.my_patch = 3
            import bireme
            assert bireme.my_patch == 3
            import paddle.nn as nn
            assert paddle.nn.functional.relu is bireme.nn.functional.relu
            nn.functional.relu = abs
            assert paddle.nn.functional.relu is bireme.nn.functional.relu is abs
        import sys
        assert "paddle" not in sys.modules
        sys.modules["paddle"] = sys
        try:
            compat.install()
        except compat.BiremeError as e:
            print(e)
        """,
    )
    result = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
    assert result.stderr == ""
    assert "already imported" in result.stdout


def test_exit_codes(tmp_path):
    assert run("run", "no_such_file.py").returncode == 2
    assert run("run", script(tmp_path, "raise SystemExit(7)")).returncode == 7
    assert run().returncode == 2
    assert run("nonsense").returncode == 2


def test_import_is_quick_and_free_of_jax(tmp_path):
    code = (
        "import sys, bireme, bireme.io, bireme.device, bireme.profiler; print('jax' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert result.stdout == "False\n"
