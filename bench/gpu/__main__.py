"""`python -m bench.gpu`: every GPU workload beside its peers, in less than eight minutes.

All caches of compilers are empty and of this run only, unless `--caches` names a folder: several
processes prepare at once here, and kernels chosen meanwhile should serve nobody else.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import report
from bench.gpu import plan, schedule, table
from bench.gpu.decode import MEMORY_CEILING
from bench.gpu.train import BF16_CEILING


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    earlier = json.loads(options.figures.read_text()) if options.figures else None
    tiny = earlier["results"]["run"]["tiny"] if earlier else options.tiny
    if options.update_docs and tiny:
        parser.error("figures of tiny sizes do not belong into docs/benchmarks.md")
    try:
        if options.update_docs and not earlier:
            report.check_publishable(report.machine())
        return _run(options, earlier, tiny)
    except report.NotPublished as error:
        raise SystemExit(str(error)) from None


def _run(options: argparse.Namespace, earlier: dict[str, Any] | None, tiny: bool) -> int:
    where, results = (earlier["machine"], earlier["results"]) if earlier else measure(options)
    text = table.render(results["workloads"], _about(results["run"]))
    name = "gpu_tiny" if tiny else "gpu"
    page = table.page(results["workloads"])
    report.publish(name, where, results, text, page, options.update_docs)
    if options.out:
        shutil.copyfile(report.RESULTS / f"{name}.json", options.out)
    return 1 if table.incomplete(results["workloads"]) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)

    def choice(flag: str, among: list[str], default: list[str] | None) -> None:
        parser.add_argument(
            flag, nargs="+", metavar="NAME", choices=among, default=default,
            help=f"out of {', '.join(among)}",
        )  # fmt: skip

    choice("--workloads", list(plan.NAMES), list(plan.NAMES))
    choice("--peers", list(plan.LABELS), None)
    parser.add_argument(
        "--deadline", type=float, default=480.0, help="seconds, then it ends with what it has"
    )
    parser.add_argument("--memory", type=float, default=139.0, help="GiB of the GPU")
    parser.add_argument(
        "--at-once", type=int, default=schedule.AT_ONCE, help="processes that prepare at a time"
    )
    parser.add_argument("--caches", type=Path, help="folder for the compilers' caches, kept")
    parser.add_argument(
        "--tiny", action="store_true", help="small sizes for any CPU, Bireme alone by default"
    )
    parser.add_argument("--out", type=Path, help="write the figures here, too")
    parser.add_argument(
        "--from", dest="figures", type=Path, help="show the figures of an earlier run's --out"
    )
    parser.add_argument("--update-docs", action="store_true", help="rewrite docs/benchmarks.md")
    return parser


def measure(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The machine, and the figures with how they were got."""
    where = report.machine()
    peers = options.peers or (["bireme"] if options.tiny else list(plan.LABELS))
    jobs = plan.jobs(options.workloads, peers, options.memory, options.tiny)
    began = time.monotonic()
    with ExitStack() as stack:
        caches = options.caches
        if caches is None:
            # Compilers of processes that were ended may still be writing when it is removed.
            fresh = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            caches = Path(stack.enter_context(fresh))
        environment = {
            "BIREME_CACHE_DIR": str(caches.absolute() / "bireme"),
            "TORCHINDUCTOR_CACHE_DIR": str(caches.absolute() / "inductor"),
            "TRITON_CACHE_DIR": str(caches.absolute() / "triton"),
        }
        run = schedule.Schedule[plan.Job](
            lambda job: job.start(**environment), options.deadline, options.at_once
        )
        outcomes = run.run(jobs, options.memory)
    workloads: table.Results = {}
    for job, outcome in outcomes.items():
        workloads.setdefault(job.workload, {})[job.peer] = asdict(outcome)
    devices = {o.figures["device"] for o in outcomes.values() if "device" in o.figures}
    where["gpu"] = ", ".join(sorted(devices)) or "no device"
    about = {
        "seconds": time.monotonic() - began, "at_once": options.at_once, "tiny": options.tiny,
        "caches": "kept" if options.caches else "empty",
    }  # fmt: skip
    return where, {"run": about, "workloads": workloads}


def _about(run: dict[str, Any]) -> str:
    sizes = "**Tiny sizes: these figures say nothing.** " if run["tiny"] else ""
    return (
        f"{sizes}Everything took {run['seconds']:.0f} s with {run['caches']} caches; up to "
        f"{run['at_once']} processes prepared at once, which lengthens their times, and one at a "
        f"time was measured. Ceilings: {BF16_CEILING / 1e12:.0f} TFLOP/s of a large bf16 product "
        f"for training, {MEMORY_CEILING / 1e12:.1f} TB/s of a large copy for decode and spectral."
    )


if __name__ == "__main__":
    sys.exit(main())
