"""Choosing an engine by measurement, once per model, shape and machine."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import time
from collections.abc import Sequence
from importlib import metadata
from statistics import median
from typing import Any

import numpy as np

from bireme.core.errors import BiremeError
from bireme.host import cache_folder
from bireme.inference.config import Config
from bireme.inference.engines import Engine, EngineUnavailable, Runner
from bireme.inference.net import Prepared
from bireme.inference.sized import ENGINES, create_engine
from bireme.io.atomic import replacing

MAX_CHOICES = 1000
TURN_SECONDS = 0.1  # that an engine runs before it is the next one's turn
PAUSE_SECONDS = 0.03  # between turns: threads of the engine before spin for a while
ROUNDS, PATIENCE_SECONDS = 8, 4.0  # the first of the two that is over ends a race
# While the two best are this near, the race goes on, for at most three times as long.
TIE = 1.06
FAR_BEHIND = 1.5  # times the best, after two rounds: out of the race
# A machine is unsteady where the usual round takes so many times as long as the best one, or where
# others have this share of a core.
UNSTEADY, OTHERS = 1.25, 0.1
_UNSURE = "?"  # before the name on disk of an engine that won an unsteady race
# How engines are compared; a choice that was made in another way counts no more.
RULE = (
    "median of turns' means against the round's best, more turns for ties, races under load twice"
)
logger = logging.getLogger("bireme.inference")


def fastest(prepared: Prepared, options: Config, arrays: Sequence[np.ndarray]) -> Engine:
    """The engine that runs these inputs fastest here; the choice is remembered on disk. One that
    won while the machine was unsteady is asked to win the next process's race, too."""
    folder = options._cache_dir or cache_folder.inside()
    path = None if folder is None else os.path.join(folder, "engines.json")
    key = _key(prepared, options, arrays)
    known = None if path is None else _read(path).get(key)
    if known in ENGINES:
        try:
            return create_engine(known, prepared, options, arrays)
        except EngineUnavailable:
            pass  # it was uninstalled since
    made: dict[str, Engine] = {}
    runners: dict[str, Runner] = {}
    for name in ENGINES:
        try:
            engine = create_engine(name, prepared, options, arrays)
            runner = engine.runner()
            runner(arrays)  # compiles
            made[name], runners[name] = engine, runner
        except (EngineUnavailable, BiremeError) as e:
            logger.debug("%s is out of the race: %s", name, e)
    times, steady = _race(runners, arrays)
    best = min(times, key=lambda name: times[name])
    if not options.glog_info_disabled():
        shown = ", ".join(f"{n} {t * 1e3:.2f} ms" for n, t in times.items())
        logger.info("engine: %s (%s%s)", best, shown, "" if steady else "; unsteady")
    sure = steady or known == _UNSURE + best
    if path is not None:
        _remember(path, key, best if sure else _UNSURE + best)
    return made[best]


def _race(
    runners: dict[str, Runner], arrays: Sequence[np.ndarray]
) -> tuple[dict[str, float], bool]:
    """The time of a run in each engine, and whether the machine was steady. Engines take turns, so
    that other load affects all; one that is far behind is not measured again."""
    rounds: list[dict[str, float]] = []
    times: dict[str, float] = {}
    start, others = time.perf_counter(), _others_seconds()
    for turn in range(3 * ROUNDS):
        ahead = sorted(times.values())[:2]
        if turn >= 2:
            length = 3 if ahead[-1] <= TIE * ahead[0] else 1
            if turn >= length * ROUNDS:
                break
            if time.perf_counter() - start > length * PATIENCE_SECONDS:
                break
        running = [n for n in runners if turn < 2 or times[n] <= FAR_BEHIND * ahead[0]]
        if turn and len(running) == 1:
            break
        rounds.append({name: _measure(runners[name], arrays) for name in running})
        times = _compared(rounds)
    others, seconds = _others_seconds() - others, time.perf_counter() - start
    best = [min(turns.values()) for turns in rounds]
    alone = others <= OTHERS * seconds + 0.05  # the system counts in steps of 0.01
    return times, alone and median(best) <= UNSTEADY * min(best)


def _others_seconds() -> float:
    """The seconds that this process's cores spent on other processes, since some moment; always 0
    where the system does not report it."""
    try:
        cores = {f"cpu{n}" for n in os.sched_getaffinity(0)}
        with open("/proc/stat", encoding="ascii") as file:
            rows = [line.split() for line in file if line.partition(" ")[0] in cores]
    except (AttributeError, OSError):
        return 0.0
    # user, nice, system, idle, waiting, interrupts of two kinds, stolen by other machines
    ticks = sum(int(row[i]) for row in rows for i in (1, 2, 3, 6, 7, 8))
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def _compared(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The time of each engine: that of the fastest in the median round, times by how much it was
    behind the fastest of its round in its median round. One lucky turn decides nothing, nor does a
    machine that is slower in some rounds than in others (a virtual one may be, for seconds)."""
    best = [min(turns.values()) for turns in rounds]
    usual = median(best)
    return {
        name: usual * median(t[name] / b for t, b in zip(rounds, best, strict=True) if name in t)
        for name in rounds[0]
    }


def _measure(run: Runner, arrays: Sequence[np.ndarray]) -> float:
    """The average time of a run in one turn: some engines are several times slower than their best
    now and then, and users meet all of it. The first run, which wakes its threads, is not
    counted."""
    time.sleep(PAUSE_SECONDS)
    run(arrays)
    runs = 0
    begin = now = time.perf_counter()
    while now - begin < TURN_SECONDS:
        run(arrays)
        runs += 1
        now = time.perf_counter()
    return (now - begin) / runs


def _key(prepared: Prepared, options: Config, arrays: Sequence[np.ndarray]) -> str:
    """The graph, the inputs' shapes, the machine, and every engine's version."""
    versions = {n: _version(n) for n in ("bireme", "jaxlib", "onnxruntime", "openvino")}
    parts: list[Any] = [
        str(prepared.graph), [list(a.shape) for a in arrays], options._threads,
        options._precision.name, str(options._place), platform.processor(), platform.node(),
        os.cpu_count(), versions, RULE,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _read(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _remember(path: str, key: str, name: str) -> None:
    choices = {**_read(path), key: name}
    choices = dict(list(choices.items())[-MAX_CHOICES:])  # the file keeps the latest
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with replacing(path) as file:
            file.write(json.dumps(choices, indent=1).encode())
    except OSError as e:
        logger.debug("the choice of an engine is not remembered: %s", e)
