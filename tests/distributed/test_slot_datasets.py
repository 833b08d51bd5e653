"""Text files as datasets of static programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bireme as paddle
from bireme import distributed as dist
from bireme import static
from bireme.core.errors import ExecutionError, FileFormatError, InvalidArgument


@pytest.fixture(autouse=True)
def _program():
    paddle.enable_static()
    with (
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
    ):
        yield
    paddle.disable_static()


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "a").write_text("1 1 2 0.5 1.5\n1 2 2 2.5 3.5\n1 3 2 1 1\n")
    (tmp_path / "b").write_text("1 4 2 0.5 1.5\n1 5 2 2.5 3.5\n")
    return [str(tmp_path / "a"), str(tmp_path / "b")]


def variables():
    return [static.data("a", [None, 1], "int64"), static.data("b", [None, 2])]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_queue_gives_batches_in_the_order_of_the_files(files, threads):
    dataset = dist.QueueDataset()
    dataset.init(batch_size=2, thread_num=threads, use_var=variables())
    dataset.set_filelist(files)
    feeds = list(dataset)
    assert [f["a"].ravel().tolist() for f in feeds] == [[1, 2], [3, 4], [5]]
    assert feeds[0]["b"].tolist() == [[0.5, 1.5], [2.5, 3.5]]
    assert feeds[0]["a"].dtype == np.int64
    assert feeds[0]["b"].dtype == np.float32


def test_a_line_may_be_a_batch(tmp_path):
    (tmp_path / "a").write_text("2 1 2 4 1 2 3 4\n")
    dataset = dist.QueueDataset()
    dataset.init(batch_size=8, use_var=variables(), input_type=1)
    dataset.set_filelist([str(tmp_path / "a")])
    (feed,) = list(dataset)
    assert feed["b"].shape == (2, 2)


def test_training_from_files_is_training_from_arrays(files):
    a, b = variables()
    y = static.nn.fc(b, 1, weight_attr=paddle.nn.initializer.Constant(0.5))
    loss = ((y - paddle.cast(a, "float32")) ** 2).mean()
    paddle.optimizer.SGD(0.01).minimize(loss)
    exe = static.Executor()
    dataset = dist.InMemoryDataset()
    dataset.init(batch_size=2, use_var=[a, b], pipe_command="cat")
    dataset.set_filelist(files)
    dataset.load_into_memory()

    def weights(train) -> np.ndarray:
        exe.run(static.default_startup_program())
        train()
        name = static.default_main_program().all_parameters()[0].name
        return static.global_scope().tensor(name).numpy()

    ours = weights(lambda: exe.train_from_dataset(static.default_main_program(), dataset))
    by_hand = weights(lambda: [exe.run(feed=feed) for feed in dataset])
    np.testing.assert_array_equal(ours, by_hand)
    assert not np.allclose(ours, 0.5)


def test_commands_that_lines_run_through(files):
    dataset = dist.QueueDataset()
    dataset.init(use_var=variables(), pipe_command="grep '^1 3'")
    dataset.set_filelist(files[:1])
    assert [int(f["a"].item()) for f in dataset] == [3]
    dataset.init(use_var=variables(), download_cmd="tail -n 1")
    assert [int(f["a"].item()) for f in dataset] == [3]
    dataset.init(use_var=variables(), pipe_command="exit 3")
    with pytest.raises(ExecutionError, match="status 3"):
        list(dataset)


def test_shuffling_keeps_the_examples(files):
    dataset = dist.InMemoryDataset()
    dataset.init(batch_size=5, use_var=variables())
    dataset.set_filelist(files)
    dataset.preload_into_memory(2)
    dataset.wait_preload_done()
    assert dataset.get_memory_data_size() == 5
    assert dataset.get_shuffle_data_size() == 0
    np.random.seed(3)
    dataset.local_shuffle()
    (shuffled,) = list(dataset)
    assert sorted(shuffled["a"].ravel()) == [1, 2, 3, 4, 5]
    assert shuffled["a"].ravel().tolist() != [1, 2, 3, 4, 5]
    dataset.global_shuffle()
    assert dataset.get_shuffle_data_size() == 5
    dataset.release_memory()
    assert dataset.get_memory_data_size() == 0


def test_slots_change_places(files):
    dataset = dist.InMemoryDataset()
    dataset.init(batch_size=5, use_var=variables())
    dataset.set_filelist(files)
    dataset.load_into_memory()
    with pytest.raises(InvalidArgument, match="fea_eval"):
        dataset.slots_shuffle(["a"])
    dataset.update_settings(batch_size=5, fea_eval=True, candidate_size=1)
    dataset.slots_shuffle(["a"])
    (feed,) = list(dataset)
    assert len(set(feed["a"].ravel())) == 1  # one candidate gives all values
    assert feed["b"].tolist()[2] == [1, 1]
    with pytest.raises(InvalidArgument, match="no slot 'c'"):
        dataset.slots_shuffle(["c"])


def test_lines_of_one_id_become_one(tmp_path):
    (tmp_path / "a").write_text("1 x 1 1 2 0 0\n1 y 1 2 2 0 0\n1 x 1 3 2 0 0\n")
    dataset = dist.InMemoryDataset()
    dataset.init(use_var=variables())
    dataset.update_settings(merge_size=2)
    dataset.set_filelist([str(tmp_path / "a")])
    dataset.load_into_memory()
    dataset.global_shuffle()
    (feed,) = list(dataset)
    assert sorted(feed["a"].ravel()) == [1, 3]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0 2 1 1", "slot 'a' has 0 values"),
        ("1 1 2 0.5", "ends inside slot 'b'"),
        ("1 x 2 1 1", "not a number"),
        ("1 1 2 1 1 7", "1 words are left"),
        ("1 1 3 1 1 1", "do not fill"),
    ],
)
def test_bad_lines_say_where(tmp_path, line, said):
    (tmp_path / "a").write_text(line + "\n")
    dataset = dist.QueueDataset()
    dataset.init(use_var=variables())
    dataset.set_filelist([str(tmp_path / "a")])
    with pytest.raises(FileFormatError, match=said):
        list(dataset)


def test_bad_settings():
    with pytest.raises(InvalidArgument, match="no 'colour'"):
        dist.InMemoryDataset().init(colour=1)
    with pytest.raises(InvalidArgument, match="float32 or int64"):
        dist.QueueDataset().init(use_var=[static.data("c", [None], "int32")])
    with pytest.raises(InvalidArgument, match="load_into_memory"):
        dist.InMemoryDataset().local_shuffle()
