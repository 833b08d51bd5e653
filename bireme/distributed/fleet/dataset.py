"""Datasets of text files for `Executor.train_from_dataset`: in memory, or one file at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.distributed.fleet.slots import Example, Format, Slot, Source

if TYPE_CHECKING:
    from bireme.distributed.fleet.fleet import Fleet


class DatasetBase:
    """Files, the variables that their lines fill, and how they are read. Iterating gives feeds."""

    def __init__(self) -> None:
        self._format = Format()
        self._source = Source()
        self._batch_size = 1
        self.thread_num = 1
        self.filelist: list[str] = []

    def init(
        self,
        batch_size: int = 1,
        thread_num: int = 1,
        use_var: Sequence[Any] = (),
        pipe_command: str = "cat",
        input_type: int = 0,
        fs_name: str = "",
        fs_ugi: str = "",
        download_cmd: str = "cat",
    ) -> None:
        """Set everything. `thread_num` files are read at once; each goes through `pipe_command`.
        A line is one example (`input_type=0`) or the examples of a whole batch (1): either way
        the batch's size is found by counting values, so the lines of a batch just follow each
        other. `fs_name` and `fs_ugi` are for files of Hadoop; `download_cmd` fetches others.
        """
        if batch_size < 1 or thread_num < 1:
            raise InvalidArgument(
                f"[dataset] batch_size and thread_num are 1 or more. Received: {batch_size}, "
                f"{thread_num}"
            )
        if input_type not in (0, 1):
            raise InvalidArgument(f"[dataset] input_type is 0 or 1. Received: {input_type}")
        self._batch_size = batch_size if input_type == 0 else 1
        self.thread_num = thread_num
        self._format.slots = [Slot.of(v) for v in use_var]
        self._source = Source(pipe_command, download_cmd, fs_name, fs_ugi)

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """The files of this worker."""
        self.filelist = list(filelist)

    def _read(self, path: str) -> list[Example]:
        if not self._format.slots:
            raise InvalidArgument("[dataset] call init(use_var=[...]) first")
        lines = self._source.lines(path)
        return [self._format.parse(x, f"{path}, line {i}") for i, x in enumerate(lines, 1)]

    def _examples(self) -> Iterator[Example]:
        """The examples of all files in order, `thread_num` files ahead."""
        with ThreadPoolExecutor(self.thread_num) as pool:
            ahead: deque[Future[list[Example]]] = deque()
            for path in self.filelist:
                ahead.append(pool.submit(self._read, path))
                if len(ahead) > self.thread_num:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return self._format.batches(self._examples(), self._batch_size)


class QueueDataset(DatasetBase):
    """Reads its files while the program runs.

    >>> dataset = QueueDataset()
    >>> dataset.init(batch_size=32, use_var=[x, y])  # doctest: +SKIP
    >>> dataset.set_filelist(["part-0.txt", "part-1.txt"])
    >>> exe.train_from_dataset(main, dataset)  # doctest: +SKIP
    """


_SINGLE = {
    "batch_size", "thread_num", "use_var", "pipe_command", "input_type", "fs_name", "fs_ugi",
    "download_cmd",
}  # fmt: skip
_QUEUES = {"data_feed_type", "queue_num"}
_SHARED = {
    "merge_size", "parse_ins_id", "parse_content", "fea_eval", "candidate_size",
    "fleet_send_batch_size", "fleet_send_sleep_seconds",
}  # fmt: skip


class InMemoryDataset(DatasetBase):
    """Reads its files at once, and can change the order of the examples before training.

    >>> dataset = InMemoryDataset()
    >>> dataset.init(batch_size=32, use_var=[x, y])  # doctest: +SKIP
    >>> dataset.set_filelist(["part-0.txt"])
    >>> dataset.load_into_memory()  # doctest: +SKIP
    >>> dataset.local_shuffle()
    """

    def __init__(self) -> None:
        super().__init__()
        self._settings: dict[str, Any] = {}
        self._loaded: list[Example] | None = None
        self._loading: Future[list[Example]] | None = None
        self._shuffled = 0
        self._merge_size = -1
        self._candidates = 0

    def init(self, **kwargs: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The settings of `QueueDataset.init`. `queue_num` and `data_feed_type` name parts of
        Paddle's reader and change nothing."""
        self._check(kwargs, _SINGLE | _QUEUES, "init")
        self._settings = {k: v for k, v in kwargs.items() if k in _SINGLE}
        super().init(**self._settings)

    def update_settings(self, **kwargs: Any) -> None:
        """Change some settings. Besides those of `init`:

        parse_ins_id, parse_content: lines begin with `1 id`, then with `1 text`;
        merge_size: examples of one line id become one when they are shuffled over all workers,
        if there are so many of them, and are left out otherwise;
        fea_eval, candidate_size: allow `slots_shuffle`, which takes values from so many examples.
        How many examples go into a message (fleet_send_*) is not for the user to say here.
        """
        self._check(kwargs, _SINGLE | _QUEUES | _SHARED, "update_settings")
        self._settings.update({k: v for k, v in kwargs.items() if k in _SINGLE})
        super().init(**self._settings)
        self._format.line_ids = bool(kwargs.get("parse_ins_id", self._format.line_ids))
        self._format.contents = bool(kwargs.get("parse_content", self._format.contents))
        if kwargs.get("merge_size", -1) > 0:
            self._merge_size = kwargs["merge_size"]
            self._format.line_ids = True
        if kwargs.get("fea_eval"):
            self._candidates = int(kwargs.get("candidate_size", 10000))

    _init_distributed_settings = update_settings

    def _check(self, given: dict[str, Any], known: set[str], where: str) -> None:
        unknown = sorted(set(given) - known)
        if unknown:
            raise InvalidArgument(
                f"[InMemoryDataset.{where}] there is no {unknown[0]!r}; there are "
                f"{', '.join(sorted(known))}"
            )

    def _held(self) -> list[Example]:
        if self._loaded is None:
            raise InvalidArgument("[InMemoryDataset] call load_into_memory() first")
        return self._loaded

    def load_into_memory(self, is_shuffle: bool = False) -> None:
        """Read all files; with `is_shuffle` in another order."""
        self._loaded = list(self._examples())
        if is_shuffle:
            self.local_shuffle()

    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """Begin to read all files; `wait_preload_done` ends it."""
        if thread_num is not None:
            self.thread_num = thread_num
        pool = ThreadPoolExecutor(1)
        self._loading = pool.submit(lambda: list(self._examples()))
        pool.shutdown(wait=False)

    def wait_preload_done(self) -> None:
        if self._loading is None:
            raise InvalidArgument("[InMemoryDataset] call preload_into_memory() first")
        self._loaded, self._loading = self._loading.result(), None

    def local_shuffle(self) -> None:
        """Another order of this worker's examples."""
        held = self._held()
        self._loaded = [held[i] for i in np.random.permutation(len(held))]

    def global_shuffle(self, fleet: Fleet | ModuleType | None = None, thread_num: int = 12) -> None:
        """Another order over all workers: each example goes to one of them by chance.

        `thread_num` is how many threads Paddle sends with; one exchange moves all examples here.
        """
        held = self._held()
        if fleet is not None and fleet.worker_num() > 1:
            workers = fleet.worker_num()
            target = np.random.randint(workers, size=len(held))
            parts = [
                [e for e, t in zip(held, target, strict=True) if t == w] for w in range(workers)
            ]
            own = fleet.worker_index()
            self._loaded = [e for sent in fleet.util.all_gather(parts) for e in sent[own]]
        self.local_shuffle()
        if self._merge_size > 0:
            self._merge()
        self._shuffled = len(self._held())

    def _merge(self) -> None:
        together: dict[str, list[Example]] = {}
        for example in self._held():
            together.setdefault(example.line_id, []).append(example)
        self._loaded = [
            Example(
                [np.concatenate(v) for v in zip(*[e.values for e in same], strict=True)],
                name,
                same[0].content,
            )
            for name, same in together.items()
            if len(same) == self._merge_size
        ]

    def slots_shuffle(self, slots: Sequence[str]) -> None:
        """Exchange the values of these slots between examples, to see what a model makes of
        them; `update_settings(fea_eval=True)` allows it."""
        if not self._candidates:
            raise InvalidArgument(
                "[slots_shuffle] call update_settings(fea_eval=True, candidate_size=...) first"
            )
        names = [s.name for s in self._format.slots]
        missing = sorted(set(slots) - set(names))
        if missing:
            raise InvalidArgument(f"[slots_shuffle] there is no slot {missing[0]!r} among {names}")
        held = self._held()
        places = [i for i, name in enumerate(names) if name in slots]
        first = np.random.permutation(len(held))[: self._candidates]
        donors = [held[i].values for i in np.random.choice(first, len(held))] if held else []
        self._loaded = [
            Example(
                [donor[i] if i in places else v for i, v in enumerate(e.values)],
                e.line_id,
                e.content,
            )
            for e, donor in zip(held, donors, strict=True)
        ]

    def release_memory(self) -> None:
        """Forget the examples."""
        self._loaded = []

    def get_memory_data_size(self, fleet: Fleet | ModuleType | None = None) -> int:
        """How many examples there are, here or (with `fleet`) in all workers."""
        return self._total(len(self._loaded or []), fleet)

    def get_shuffle_data_size(self, fleet: Fleet | ModuleType | None = None) -> int:
        """How many examples there were after the last `global_shuffle`."""
        return self._total(self._shuffled, fleet)

    def _total(self, own: int, fleet: Fleet | ModuleType | None) -> int:
        return own if fleet is None else int(fleet.util.all_reduce(np.array([own]))[0])

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return self._format.batches(self._held(), self._batch_size)
