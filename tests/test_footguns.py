"""Every way laziness could surprise a user, as a test.

Two sections: what works as if each line ran at once, and what is refused loudly. There is no
third section: nothing here may be silently wrong.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc

import numpy as np
import pytest

import bireme as paddle
import bireme.nn.functional as F
from bireme.backends import Executable, reference
from bireme.core import executor, stats, trace
from bireme.core.errors import AutogradError, BiremeError
from bireme.core.program import Program
from bireme.host import config

# ------------------------------------------------------------------ works as if it ran at once


def test_changing_a_numpy_array_after_handing_it_in(tier):
    array = np.ones(4, np.float32)
    x = paddle.to_tensor(array)
    y = x * 2
    array[:] = 100
    np.testing.assert_array_equal(y.numpy(), [2, 2, 2, 2])
    np.testing.assert_array_equal(x.numpy(), [1, 1, 1, 1])


def test_changing_a_numpy_operand_after_the_operation(tier):
    array = np.ones(3, np.float32)
    y = paddle.zeros([3]) + array
    array[:] = 7
    np.testing.assert_array_equal(y.numpy(), [1, 1, 1])


def test_changing_what_numpy_returned_does_not_change_the_tensor(tier):
    x = paddle.ones([3]) * 2
    view = x.numpy()
    view[:] = 9
    np.testing.assert_array_equal(x.numpy(), [2, 2, 2])
    kept = paddle.ones([3])
    before = np.asarray(kept)
    kept.add_(paddle.ones([3]))
    np.testing.assert_array_equal(before, [1, 1, 1])
    np.testing.assert_array_equal(kept.numpy(), [2, 2, 2])


def test_changing_a_list_after_using_it_as_an_argument(tier):
    shape = [2, 3]
    x = paddle.ones([6]).reshape(shape)
    shape[0] = 99
    parts = [paddle.ones([2]), paddle.zeros([2])]
    joined = paddle.concat(parts)
    parts.clear()
    assert x.shape == [2, 3]
    np.testing.assert_array_equal(joined.numpy(), [1, 1, 0, 0])


def test_in_place_write_after_use_does_not_reach_back(tier):
    x = paddle.ones([3])
    y = x + 1
    x.add_(paddle.ones([3]))
    x[0] = 50.0
    np.testing.assert_array_equal(y.numpy(), [2, 2, 2])
    np.testing.assert_array_equal(x.numpy(), [50, 2, 2])


def test_views_follow_writes_and_writes_follow_views(tier):
    x = paddle.zeros([2, 3])
    row = x[0]
    flat = x.reshape([6])
    row.add_(paddle.ones([3]))
    np.testing.assert_array_equal(x.numpy(), [[1, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(flat.numpy(), [1, 1, 1, 0, 0, 0])
    x[1, 2] = 5.0
    np.testing.assert_array_equal(flat.numpy(), [1, 1, 1, 0, 0, 5])
    copy = x[[0]]
    copy.add_(paddle.ones([1, 3]))
    np.testing.assert_array_equal(x.numpy()[0], [1, 1, 1])


def test_reading_inside_a_step_changes_nothing(tier):
    def run(read: bool) -> np.ndarray:
        x = paddle.to_tensor([1.0, 2.0, 3.0], stop_gradient=False)
        h = x * 2
        if read:
            h.numpy()
        loss = (h * h).sum()
        if read:
            loss.item()
        loss.backward()
        return x.grad.numpy()

    np.testing.assert_array_equal(run(True), run(False))


def test_the_loop_variable_is_read_at_the_call(tier):
    results = [paddle.ones([1]) * i for i in range(5)]
    assert [r.item() for r in results] == [0, 1, 2, 3, 4]


def test_python_numbers_are_not_frozen_into_the_program(monkeypatch):
    monkeypatch.setattr(config, "compile_mode", "always")
    outs = [(paddle.ones([2]) * (1 / (i + 1))).numpy()[0] for i in range(4)]
    np.testing.assert_allclose(outs, [1, 1 / 2, 1 / 3, 1 / 4], rtol=1e-6)


def test_random_numbers_differ_between_calls_and_agree_between_tiers(monkeypatch):
    def draw() -> list[np.ndarray]:
        paddle.seed(11)
        return [paddle.rand([5]).numpy(), paddle.rand([5]).numpy()]

    monkeypatch.setattr(config, "compile_mode", "never")
    cold = draw()
    monkeypatch.setattr(config, "compile_mode", "always")
    compiled = draw()
    assert not np.array_equal(cold[0], cold[1])
    np.testing.assert_array_equal(cold, compiled)


def test_random_numbers_do_not_depend_on_when_someone_looks(tier):
    def draw(look: bool) -> list[np.ndarray]:
        paddle.seed(5)
        a = paddle.rand([4])
        if look:
            a.numpy()
        b = F.dropout(paddle.ones([64]), 0.5)
        return [a.numpy(), b.numpy()]

    np.testing.assert_array_equal(draw(True)[0], draw(False)[0])
    np.testing.assert_array_equal(draw(True)[1], draw(False)[1])


def test_the_first_compilation_draws_no_numbers_of_the_user():
    """JAX draws from NumPy's generator when it is imported, at some moment of a program."""
    code = (
        "import sys, numpy as np\n"
        "from bireme.host import jax_door\n"
        "np.random.seed(3)\n"
        "wanted = np.random.rand(4)\n"
        "np.random.seed(3)\n"
        "assert 'jax' not in sys.modules\n"
        "jax_door.jax()\n"
        "assert (np.random.rand(4) == wanted).all()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_tensors_kept_in_a_list_keep_their_values(tier):
    history = []
    x = paddle.zeros([2])
    for _ in range(20):
        x = x + 1
        history.append(x)
    assert [h.numpy()[0] for h in history] == list(range(1, 21))


def test_a_chain_of_twenty_thousand_operations(tier, monkeypatch):
    monkeypatch.setattr(config, "compile_mode", "never")  # compiling 4,096 adds is slow, not wrong
    x = paddle.to_tensor([0.0], stop_gradient=False)
    y = x
    for _ in range(20_000):
        y = y + 1
    assert y.item() == 20_000
    y.backward()
    assert x.grad.item() == 1.0


def test_dropping_a_long_chain_needs_no_recursion():
    x = paddle.to_tensor([0.0], stop_gradient=False)
    for _ in range(50_000):
        x = x * 1.0
    del x


def test_a_generator_that_yields_lazily(tier):
    def batches():
        total = paddle.zeros([1])
        for i in range(4):
            total = total + i
            yield total

    assert [t.item() for t in batches()] == [0, 1, 3, 6]


def test_no_grad_inside_a_generator_stays_inside():
    @paddle.no_grad()
    def items():
        for _ in range(2):
            yield paddle.is_grad_enabled()

    assert [(inside, paddle.is_grad_enabled()) for inside in items()] == [(False, True)] * 2


def test_printing_inside_a_backward_hook(tier, capsys):
    x = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
    h = x * 3
    seen = []
    h.register_hook(lambda g: (seen.append(g.numpy()), print(g))[0])
    (h * h).sum().backward()
    np.testing.assert_array_equal(seen[0], [6, 12])
    np.testing.assert_array_equal(x.grad.numpy(), [18, 36])
    assert "Tensor(shape=[2]" in capsys.readouterr().out


def test_an_exception_in_the_middle_of_a_step_leaves_earlier_work_intact(tier):
    x = paddle.ones([3]) * 2
    with pytest.raises(BiremeError):
        _ = x + paddle.ones([4])
    y = x + 1
    np.testing.assert_array_equal(y.numpy(), [3, 3, 3])


def test_an_exception_in_a_hook_leaves_tensors_and_modes_intact():
    x = paddle.to_tensor([1.0], stop_gradient=False)
    h = x * 2

    def fail(grad):
        raise RuntimeError("from the hook")

    h.register_hook(fail)
    with pytest.raises(RuntimeError, match="from the hook"):
        h.backward()
    assert paddle.is_grad_enabled()
    assert h.item() == 2.0
    y = x * 5
    y.backward()
    assert x.grad.item() == 5.0


def test_a_failed_flush_can_be_repeated(monkeypatch):
    x = paddle.ones([3]) + 1
    real = executor.run_cold
    failures = [KeyboardInterrupt(), RuntimeError("device lost")]

    def flaky(*args):
        if failures:
            raise failures.pop()
        return real(*args)

    monkeypatch.setattr(executor, "run_cold", flaky)
    with pytest.raises(RuntimeError, match="device lost"):
        x.numpy()
    with pytest.raises(KeyboardInterrupt):
        x.numpy()
    np.testing.assert_array_equal(x.numpy(), [2, 2, 2])


def test_ctrl_c_during_training_loses_no_parameter():
    """Interrupts at random moments of a compiled, donating loop: every weight stays readable."""
    program = textwrap.dedent(
        """
        import os, signal, threading, time, random
        import numpy as np, bireme as paddle
        from bireme.host import config
        config.compile_mode = "sync"
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
        net = paddle.nn.Linear(8, 8)
        opt = paddle.optimizer.Adam(1e-3, parameters=net.parameters())
        x = paddle.ones([4, 8])
        def step():
            loss = net(x).square().mean()
            loss.backward(); opt.step(); opt.clear_grad()
        for _ in range(4): step()
        random.seed(0)
        interrupts = 0
        for _ in range(60):
            wait = random.random() * 0.01
            timer = threading.Timer(wait, os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                for _ in range(40): step()
                time.sleep(0.02)
            except KeyboardInterrupt:
                interrupts += 1
            timer.cancel(); timer.join()
            opt.clear_grad()
            for p in net.parameters():
                assert np.isfinite(p.numpy()).all()
        step()
        print("interrupts", interrupts)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) > 10


def test_threads_record_independently():
    results: dict[int, float] = {}

    def work(n: int) -> None:
        x = paddle.to_tensor(float(n), stop_gradient=False)
        for _ in range(50):
            y = (x * x).sum()
        y.backward()
        results[n] = x.grad.item()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {n: 2.0 * n for n in range(6)}


def test_a_pending_tensor_of_another_thread():
    ready, go_on = threading.Event(), threading.Event()
    box: list = []

    def producer() -> None:
        x = paddle.ones([3]) * 4
        box.append(x)
        ready.set()
        go_on.wait(10)
        box.append((x + 1).numpy())

    thread = threading.Thread(target=producer)
    thread.start()
    ready.wait(10)
    here = box[0] + 10  # still pending in the producer's trace
    np.testing.assert_array_equal(here.numpy(), [14, 14, 14])
    go_on.set()
    thread.join()
    np.testing.assert_array_equal(box[1], [5, 5, 5])


def test_two_recorders_feeding_each_other():
    from queue import Queue

    there: Queue = Queue()
    back: Queue = Queue()

    def partner() -> None:
        while (item := there.get()) is not None:
            back.put(item * 2)

    thread = threading.Thread(target=partner)
    thread.start()
    x = paddle.ones([2])
    for _ in range(10):
        there.put(x + 1)
        x = back.get()
    there.put(None)
    thread.join()
    expected = 1.0
    for _ in range(10):
        expected = (expected + 1) * 2
    np.testing.assert_array_equal(x.numpy(), [expected, expected])


def test_no_grad_in_one_thread_does_not_reach_another():
    seen = []
    with paddle.no_grad():
        thread = threading.Thread(target=lambda: seen.append(paddle.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_child_can_compute():
    warm = paddle.ones([4]) * 3
    pending = warm + 1
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, (pending * 2).numpy().tobytes())
        finally:
            os._exit(0)
    deadline = time.time() + 30
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.time() > deadline:
            os.kill(pid, signal.SIGKILL)
            pytest.fail("the forked child hangs")
        time.sleep(0.02)
    os.close(writer)
    np.testing.assert_array_equal(np.frombuffer(os.read(reader, 100), np.float32), [8, 8, 8, 8])


def test_summing_losses_without_reading_grows_nothing(monkeypatch):
    # Nothing in the background, of this test or earlier ones: the compiler's own memory must not
    # fall into the window.
    monkeypatch.setattr(config, "compile_mode", "sync")
    executor.wait_for_compilation()
    x = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
    total = paddle.zeros([])
    sizes = []
    tracemalloc.start()
    for i in range(10_000):
        loss = (x * x).sum()
        total = total + loss
        loss.backward()
        x.clear_grad()
        trace.seal()
        if i in (1_000, 9_999):
            sizes.append((tracemalloc.get_traced_memory()[0], len(trace.state.trace.values)))
    tracemalloc.stop()
    assert sizes[1][1] <= sizes[0][1] + 64
    assert sizes[1][0] < sizes[0][0] + 200_000
    assert total.item() == pytest.approx(50_000)


def test_what_dies_unread_is_never_computed(monkeypatch):
    ran = []
    backend = reference()
    real = type(backend).run_call
    monkeypatch.setattr(
        type(backend),
        "run_call",
        lambda self, call, arrays: (ran.append(call.op.name), real(self, call, arrays))[1],
    )
    x = paddle.ones([4]) + 1
    unused = paddle.exp(x)
    del unused
    x.numpy()
    assert "exp" not in ran


def test_deep_copies_are_independent(tier):
    import copy

    x = paddle.ones([2]) + 1
    y = copy.deepcopy(x)
    x.add_(paddle.ones([2]))
    np.testing.assert_array_equal(y.numpy(), [2, 2])


def test_results_do_not_depend_on_op_by_op_mode(monkeypatch):
    def work() -> np.ndarray:
        trace.flush()
        trace.fresh_trace()
        x = paddle.to_tensor([0.5, 1.5], stop_gradient=False)
        y = paddle.exp(x).sum() * 2
        y.backward()
        return x.grad.numpy()

    lazy = work()
    monkeypatch.setattr(config, "eager_mode", "op")
    np.testing.assert_array_equal(work(), lazy)
    monkeypatch.undo()
    trace.flush()
    trace.fresh_trace()


def test_a_shape_that_never_comes_back_compiles_nothing():
    with stats.count_compiles() as compiles:
        for n in range(3, 20):
            (paddle.ones([n]) * 2).sum().item()
    assert compiles == [0]


# ----------------------------------------------------------------------------- refused loudly


def test_backward_twice_says_what_to_do():
    x = paddle.to_tensor([1.0], stop_gradient=False)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(AutogradError, match="retain_graph=True"):
        y.backward()


def test_changing_a_saved_tensor_in_place_raises_in_backward():
    x = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
    h = x * 1
    y = h * h
    h.add_(paddle.ones([2]))
    with pytest.raises(AutogradError, match="in-place"):
        y.sum().backward()


def test_changing_a_leaf_in_place_raises():
    x = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
    with pytest.raises(ValueError, match="no_grad"):
        x.add_(paddle.ones([2]))
    with pytest.raises(ValueError, match="no_grad"):
        x[0] = 3.0


def test_truth_of_many_elements_raises():
    with pytest.raises(ValueError, match="one element"):
        bool(paddle.ones([2]))


def test_errors_come_at_the_line_of_the_mistake():
    a, b = paddle.ones([2, 3]), paddle.ones([4])
    good = a * 2
    with pytest.raises(ValueError, match=r"\[add\].*\[2, 3\].*\[4\]") as caught:
        good + b
    assert (
        caught.traceback[0].lineno + 1
        == test_errors_come_at_the_line_of_the_mistake.__code__.co_firstlineno + 4
    )


def test_running_out_of_memory_names_the_operation(monkeypatch):
    monkeypatch.setattr(config, "compile_mode", "always")
    # A shape of its own: a call is shown with the line that made one of its kind first.
    x = paddle.ones([1, 1, 1, 1, 1, 1])
    y = x * 3
    z = y.sum()

    class Exhausted(Executable):
        def put(self, array):
            return array

        def call(self, *args):
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes")

    monkeypatch.setattr(Program, "_compiled", lambda program: Exhausted())
    with pytest.raises(MemoryError, match=r"test_footguns\.py"):
        z.item()
    monkeypatch.undo()
    assert z.item() == 3.0


def test_nan_check_names_the_operation_and_its_line(monkeypatch):
    monkeypatch.setattr(config, "check_nan_inf", True)
    # A shape of its own: a call is shown with the line that made one of its kind first.
    x = paddle.zeros([2, 1, 41])
    y = paddle.log(x - 1.25)
    with pytest.raises(RuntimeError, match=r"\[log\].*test_footguns.py"):
        (y * 2).numpy()
