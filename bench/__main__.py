"""The command line: `python -m bench eager|to_static|infer|cold|short|memory|record|curves`."""

from __future__ import annotations

import argparse

from bench import against, cold, curves, eager, infer, memory, peers, record, report, to_static
from bench.infer_models import MODELS
from bench.infer_worker import PEERS as ENGINES
from bench.processes import pin_to_cores
from bench.short import measuring as short
from bench.short.programs import PROGRAMS
from bench.workloads import WORKLOADS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("--update-docs", action="store_true", help="rewrite docs/benchmarks.md")
        return sub

    def choice(
        sub: argparse.ArgumentParser, flag: str, all_: list[str], default: list[str]
    ) -> None:
        sub.add_argument(
            flag,
            nargs="+",
            choices=all_,
            default=default,
            metavar="NAME",
            help=f"out of {', '.join(all_)}",
        )

    names, workloads = list(peers.NAMES), list(WORKLOADS)
    sub = command("eager", "training steps of all peers, side by side")
    choice(sub, "--workloads", workloads, workloads)
    choice(sub, "--peers", names, names)
    sub.add_argument("--rounds", type=int, default=7)
    sub.add_argument("--turn-seconds", type=float, default=1.0, help="length of a peer's turn")
    sub.add_argument(
        "--no-extension",
        dest="extension",
        action="store_false",
        help="Bireme without its native kernels, as on a machine without a C++ compiler",
    )
    sub.add_argument("--autocast", action="store_true", help="everybody in bfloat16 autocast")

    sub = command("to_static", "captured training steps against hand-jitted JAX steps")
    choice(sub, "--workloads", workloads, workloads)
    sub.add_argument("--rounds", type=int, default=7)
    sub.add_argument("--turn-seconds", type=float, default=1.0, help="length of a peer's turn")

    sub = command("infer", "saved models in Bireme's predictor and in other engines")
    choice(sub, "--models", list(MODELS), list(MODELS))
    choice(sub, "--peers", list(ENGINES), list(ENGINES))
    sub.add_argument("--batches", type=int, nargs="+", default=list(infer.BATCHES))
    sub.add_argument("--rounds", type=int, default=5)
    sub.add_argument("--turn-seconds", type=float, default=0.4, help="length of a peer's turn")

    sub.add_argument(
        "--keep", action="store_true", help="keep today's rows of models that are not measured now"
    )

    sub = command("cold", "time to a first result, and a loop of ever new shapes")
    sub.add_argument("--runs", type=int, default=9)

    sub = commands.add_parser(
        "short",
        help="short programs, whole processes, against the wheel",
        description="short programs, whole processes, against the wheel",
    )
    choice(sub, "--programs", list(PROGRAMS), list(PROGRAMS))
    choice(sub, "--peers", short.PEERS, short.PEERS)
    sub.add_argument("--rounds", type=int, default=3)
    sub.add_argument("--warm", action="store_true", help="with Bireme's disk cache, filled before")

    sub = command("memory", "peak resident memory of training")
    choice(sub, "--workloads", workloads, ["resnet18", "encoder"])
    choice(sub, "--peers", names, names)

    sub = command("record", "what Python costs in a step of Bireme")
    choice(sub, "--workloads", workloads, workloads)
    sub.add_argument("--steps", type=int, default=100)

    sub = commands.add_parser(
        "against",
        help="this checkout and an earlier commit, turn by turn",
        description="this checkout and an earlier commit, turn by turn",
    )
    sub.set_defaults(update_docs=False)
    sub.add_argument("revision")
    kinds = ["eager", "to_static", "record", "cold", "memory"]
    choice(sub, "--kinds", kinds, kinds)
    choice(sub, "--workloads", workloads, workloads)
    sub.add_argument("--rounds", type=int, default=5)
    sub.add_argument("--turn-seconds", type=float, default=1.0, help="length of a side's turn")

    sub = command("curves", "losses of a training against torch's, from the same weights")
    choice(sub, "--workloads", workloads, workloads)
    choice(sub, "--peers", list(curves.NAMES), list(curves.NAMES))
    sub.add_argument("--steps", type=int, default=curves.STEPS)
    sub.add_argument("--redraw", action="store_true", help="from the last run's figures")
    return parser


def main() -> None:
    options = vars(_parser().parse_args())
    pin_to_cores()
    command = options.pop("command")
    if "peers" in options:
        options["names"] = options.pop("peers")
    modules = {
        "eager": eager, "to_static": to_static, "infer": infer, "cold": cold, "short": short,
        "memory": memory, "record": record, "curves": curves, "against": against,
    }  # fmt: skip
    try:
        if options.get("update_docs"):
            report.check_publishable(report.machine())  # before an hour of measuring
        modules[command].main(**options)
    except report.NotPublished as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
