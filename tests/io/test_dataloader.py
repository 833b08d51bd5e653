"""DataLoader: values against Paddle's, worker processes, failures, and nothing left behind."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import bireme
from bireme.core.errors import BiremeError, ExecutionError
from bireme.io import DataLoader, Dataset, IterableDataset, get_worker_info
from bireme.io.collate import default_collate_fn, default_convert_fn
from tests.io.workers import left_workers


class Squares(Dataset):
    def __init__(self, n=10, width=3, delay=0.0):
        self.n, self.width, self.delay = n, width, delay

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        # Later samples come faster, so that workers finish out of order.
        time.sleep(self.delay * (self.n - i))
        return np.full(self.width, i * i, "float32"), i


class Numbers(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = get_worker_info()
        step, start = (1, 0) if info is None else (info.num_workers, info.id)
        return iter(range(start, self.n, step))


class Faulty(Squares):
    def __getitem__(self, i):
        if i == 5:
            raise KeyError("sample five is bad")
        return super().__getitem__(i)


class Killed(Squares):
    def __getitem__(self, i):
        if i == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(i)


class Process(Squares):
    """Tells what the worker process looks like."""

    def __getitem__(self, i):
        info = get_worker_info()
        return info.id, info.num_workers, os.getpid(), "jax" in sys.modules, np.random.rand()


class Fields(Dataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i]


def init_worker(worker_id):
    os.environ["BIREME_TEST_WORKER"] = f"ready {worker_id}"


class Initialised(Squares):
    def __getitem__(self, i):
        return os.environ["BIREME_TEST_WORKER"]


def pair_up(samples):
    return tuple(np.array([s]) for s in samples), len(samples)


def joined(lists):
    return list(itertools.chain.from_iterable(lists))


def plain(batch):
    """Tensors as (dtype name, list), for comparing with Paddle."""
    if isinstance(batch, list | tuple):
        return type(batch), [plain(b) for b in batch]
    if isinstance(batch, dict):
        return {k: plain(v) for k, v in batch.items()}
    if hasattr(batch, "numpy"):
        return str(batch.dtype), batch.shape[:], batch.numpy().tolist(), batch.stop_gradient
    return batch


SAMPLES = [
    [np.ones(3, "float32") * i for i in range(5)],
    list(range(5)),
    [1.5 * i for i in range(5)],
    [(np.full((2, 2), i, "int32"), i) for i in range(5)],
    [{"a": i, "b": "text"} for i in range(5)],
    [[i, (i, 2.0)] for i in range(5)],
    [i % 2 == 0 for i in range(5)],
    [(np.float32(i), b"bytes") for i in range(5)],
    [np.array(i) for i in range(5)],
]


@pytest.mark.parametrize("samples", SAMPLES, ids=lambda s: type(s[0]).__name__)
@pytest.mark.parametrize("options", [{"batch_size": 2}, {"batch_size": 2, "drop_last": True}])
def test_batches_are_paddles(paddle, samples, options):
    real_dataset = type("Real", (paddle.io.Dataset,), dict(Fields.__dict__))(samples)
    expected = [plain(b) for b in paddle.io.DataLoader(real_dataset, **options)]
    assert [plain(b) for b in DataLoader(Fields(samples), **options)] == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_order_is_the_samplers_whatever_finishes_first(workers):
    loader = DataLoader(Squares(9, delay=0.002), batch_size=2, num_workers=workers)
    seen = [labels.tolist() for _, labels in loader]
    assert seen == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]
    assert len(loader) == 5


@pytest.mark.parametrize("workers", [0, 2])
def test_shuffle_repeats_with_numpys_seed(workers):
    orders = []
    for _ in range(2):
        np.random.seed(7)
        loader = DataLoader(Squares(20), batch_size=4, shuffle=True, num_workers=workers)
        orders.append([labels.tolist() for _, labels in loader])
    assert orders[0] == orders[1]
    assert sorted(joined(orders[0])) == list(range(20))


@pytest.mark.parametrize("shared", [True, False])
def test_large_arrays_from_workers(shared):
    loader = DataLoader(
        Squares(6, width=50_000), batch_size=3, num_workers=2, use_shared_memory=shared
    )
    for start, (images, labels) in zip((0, 3), loader, strict=True):
        assert images.shape == [3, 50_000]
        assert labels.tolist() == [start, start + 1, start + 2]
        np.testing.assert_array_equal(images.numpy()[:, -1], np.arange(start, start + 3) ** 2)


def test_workers_are_separate_seeded_and_free_of_jax():
    bireme.host.jax_door.jax()  # the parent has XLA; the workers must not
    draws = []
    for _ in range(2):
        np.random.seed(3)
        loader = DataLoader(Process(4), batch_size=1, num_workers=2)
        rows = [[field.item() for field in batch] for batch in loader]
        assert [row[0] for row in rows] == [0, 1, 0, 1]
        assert all(row[1] == 2 and row[2] != os.getpid() and not row[3] for row in rows)
        assert len({row[2] for row in rows}) == 2
        draws.append([row[4] for row in rows])
    assert draws[0] == draws[1]
    assert len(set(draws[0])) == 4
    assert get_worker_info() is None


def test_worker_init_fn_runs_in_each_worker():
    loader = DataLoader(Initialised(4), batch_size=1, num_workers=2, worker_init_fn=init_worker)
    assert [b[0] for b in loader] == ["ready 0", "ready 1", "ready 0", "ready 1"]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_streams(workers):
    loader = DataLoader(Numbers(17), batch_size=4, num_workers=workers)
    seen = joined([b.tolist() for b in loader])
    assert sorted(seen) == list(range(17))
    again = joined([b.tolist() for b in loader])
    assert again == seen
    with pytest.raises(BiremeError, match="not known"):
        len(loader)


def test_stream_drop_last():
    assert [len(b) for b in DataLoader(Numbers(10), batch_size=4, drop_last=True)] == [4, 4]


@pytest.mark.parametrize("workers", [0, 1])
def test_without_batching_samples_are_batches(workers):
    batches = list(DataLoader(Squares(3), batch_size=None, num_workers=workers))
    assert [b[0].shape for b in batches] == [[3]] * 3
    assert [b[1] for b in batches] == [0, 1, 2]


def test_custom_collate_and_batch_sampler():
    loader = DataLoader(Fields(list(range(6))), batch_sampler=[[5, 0], [3, 3]], collate_fn=pair_up)
    (rows, count), (again, _) = list(loader)
    assert [r.item() for r in rows] == [5, 0]
    assert [r.item() for r in again] == [3, 3]
    assert count == 2


def test_persistent_workers_stay_and_a_broken_off_pass_does_not_leak_into_the_next():
    loader = DataLoader(
        Squares(12), batch_size=2, num_workers=2, persistent_workers=True, prefetch_factor=3
    )
    first = next(iter(loader))
    pids = [w.pid for w in loader._pool.workers]
    assert first[1].tolist() == [0, 1]
    for _ in range(2):
        assert joined([b[1].tolist() for b in loader]) == list(range(12))
    assert [w.pid for w in loader._pool.workers] == pids
    del loader
    gc.collect()
    assert not _alive(pids)


def test_persistent_streams_start_again():
    loader = DataLoader(Numbers(7), batch_size=2, num_workers=2, persistent_workers=True)
    passes = [sorted(joined([b.tolist() for b in loader])) for _ in range(2)]
    assert passes == [list(range(7))] * 2


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_in_the_dataset_arrives_with_its_traceback(workers):
    loader = DataLoader(Faulty(10), batch_size=2, num_workers=workers)
    seen = []
    with pytest.raises(KeyError, match="sample five is bad") as info:
        seen.extend(labels.tolist() for _, labels in loader)
    assert seen == [[0, 1], [2, 3]]
    if workers:
        assert "__getitem__" in str(info.value)
        assert "test_dataloader.py" in str(info.value)
    assert not left_workers()


def test_a_killed_worker_is_an_error_not_a_hang():
    with pytest.raises(ExecutionError, match=r"worker \d died \(signal SIGKILL\)"):
        list(DataLoader(Killed(10), batch_size=1, num_workers=2))
    assert not left_workers()


def test_timeout():
    loader = DataLoader(Squares(2, delay=5), batch_size=1, num_workers=1, timeout=0.2)
    with pytest.raises(ExecutionError, match=r"timeout=0\.2"):
        next(iter(loader))
    assert not left_workers()


@pytest.mark.parametrize("workers", [0, 2])
def test_early_break_leaves_nothing_behind(workers):
    threads = threading.active_count()
    for _, labels in DataLoader(Squares(100), batch_size=1, num_workers=workers):
        if labels.item() == 3:
            break
    assert not left_workers()
    deadline = time.monotonic() + 120
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= threads


def test_unpicklable_parts_are_named():
    class Locked(Squares):
        lock = threading.Lock()

    with pytest.raises(TypeError, match=r"dataset .*Locked.* is not.*lock.*num_workers=0"):
        next(iter(DataLoader(Locked(), num_workers=1)))
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"collate_fn \(<function .*lambda"):
        next(iter(DataLoader(Squares(), num_workers=1, collate_fn=lambda b: lock)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_workers": -1}, "num_workers must be 0 or more"),
        ({"batch_size": 0}, "batch_size must be a positive integer"),
        ({"prefetch_factor": 0}, "prefetch_factor must be a positive"),
        ({"batch_sampler": [[0]], "shuffle": True}, "belong to the batch_sampler"),
        ({"return_list": False}, "feed_list"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(BiremeError, match=message):
        DataLoader(Squares(), **options)


def test_samples_that_do_not_fit_together():
    ragged = Fields([np.zeros(2), np.zeros(3)])
    with pytest.raises(BiremeError, match=r"one shape.*\[2\] and \[3\]"):
        next(iter(DataLoader(ragged, batch_size=2)))
    with pytest.raises(BiremeError, match="equally many fields"):
        next(iter(DataLoader(Fields([(1,), (1, 2)]), batch_size=2)))
    with pytest.raises(BiremeError, match="Received: object"):
        next(iter(DataLoader(Fields([object()]), batch_size=1)))


def test_what_a_loader_does_with_samples_can_be_called():
    made = default_collate_fn(
        [(1, {"x": bireme.ones([2])}, "a"), (2, {"x": bireme.ones([2])}, "b")]
    )
    assert made[0].tolist() == [1, 2]
    assert isinstance(made[1]["x"], bireme.Tensor)
    assert made[1]["x"].shape == [2, 2]
    assert made[2] == ["a", "b"]
    assert default_convert_fn(3) == 3


def test_a_feed_list_names_the_fields():
    loader = DataLoader(Squares(2), feed_list=["x", "y"], return_list=False, batch_size=2)
    assert list(next(iter(loader))) == ["x", "y"]


def test_asking_for_a_batch_ends_the_step(monkeypatch):
    calls = []
    monkeypatch.setattr("bireme.core.trace.flush_sealed", lambda: calls.append(1))
    assert len(list(DataLoader(Squares(4), batch_size=2))) == 2
    assert len(calls) == 3  # two batches and the end


SCRIPT = """
    import sys, time
    import numpy as np
    from bireme.io import DataLoader, Dataset

    class Slow(Dataset):
        def __len__(self): return 1000
        def __getitem__(self, i):
            time.sleep(0.01)
            return np.zeros(20000, "float32")

    {guard}
        for batch in DataLoader(Slow(), batch_size=2, num_workers=2):
            print("batch", flush=True)
"""


@pytest.fixture
def start(tmp_path):
    """Starts the script and makes sure that it is gone afterwards."""
    started = []

    def run(guard):
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(SCRIPT.format(guard=guard)))
        pipe = subprocess.PIPE
        process = subprocess.Popen([sys.executable, path], stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        with process:
            process.kill()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(start, how):
    if signal.getsignal(how) is signal.SIG_IGN:
        pytest.skip("this suite was started in the background, where children ignore Ctrl-C")
    process = start("if __name__ == '__main__':")
    assert process.stdout.readline() == "batch\n"
    children = _children(process.pid)
    assert len(children) >= 2
    process.send_signal(how)
    _, err = process.communicate(timeout=600)
    assert process.returncode != 0
    if how is signal.SIGINT:
        assert "KeyboardInterrupt" in err
        assert err.count("Traceback") == 1
    assert not _alive(children)


def test_a_loader_outside_the_main_guard_is_told_so(start):
    """The script has one, so its processes run it again."""
    process = start("if __name__ == '__main__':\n        pass\n    if True:")
    _, err = process.communicate(timeout=600)
    assert process.returncode != 0
    assert "if __name__ == '__main__':" in err.splitlines()[-1]


def _children(pid):
    """Every descendant of a process."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    parent = int(stat.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry), *_children(int(entry))]
    return found


def _alive(pids, patience=120.0):
    """Those that still run after a while (zombies do not count)."""
    deadline = time.monotonic() + patience
    while True:
        left = []
        for pid in pids:
            try:
                with open(f"/proc/{pid}/stat") as stat:
                    if stat.read().rpartition(")")[2].split()[0] != "Z":
                        left.append(pid)
            except OSError:
                continue
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)
