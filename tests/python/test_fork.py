"""A forked child (C36) may end as it likes; what it asks of its parent's offload is refused."""

import os
import signal
import sys
import threading
import traceback
import warnings

import pytest
import torch
from torch import nn

import frostline
from tier_bytes import wait_until
from twin_runs import bits, bytes_moved_out_of

TIMEOUT_S = 30


def in_child(work):
    """Runs `work` in a forked child; its exit status. Fails if it hangs or is killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads beside fork: the very case
        child = os.fork()
    if child == 0:
        status = 99
        try:
            status = work() or 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    killer = threading.Timer(TIMEOUT_S, os.kill, (child, signal.SIGKILL))
    killer.start()
    _, status = os.waitpid(child, 0)
    killer.cancel()
    assert os.WIFEXITED(status), f"the child hung or was killed: status {status}"
    return os.WEXITSTATUS(status)


@pytest.fixture
def in_use(tight, seed):
    """An offload with a graph whose tensors lie in every tier."""
    x = torch.randn(256, 128, requires_grad=True)
    reference = x.detach().clone().requires_grad_()
    y = reference
    for _ in range(30):
        y = y.exp().tanh()
    y.sum().backward()
    with tight:
        y = x
        for _ in range(30):
            y = y.exp().tanh()
    wait_until(lambda: bytes_moved_out_of(tight) > 1 << 20)
    yield tight, x, y, reference.grad
    if x.grad is None:
        y.sum().backward()
    assert bits(x.grad) == bits(reference.grad), "the child disturbed its parent"


def test_a_child_that_does_nothing(in_use):
    assert in_child(lambda: 0) == 0


def test_a_child_that_runs_backward_gets_a_clear_error(in_use):
    _, _, y, _ = in_use

    def work():
        try:
            y.sum().backward()
        except frostline.Error as error:
            return 7 if "belongs to the parent process" in str(error) else 8

    assert in_child(work) == 7


@pytest.mark.parametrize("call", ["step", "close", "trace"])
def test_calls_in_the_child_are_refused(call, in_use):
    def work():
        try:
            getattr(in_use[0], call)()
        except frostline.Error as error:
            return 7 if "belongs to the parent process" in str(error) else 8

    assert in_child(work) == 7


def test_figures_in_the_child_are_empty(in_use):
    assert in_child(lambda: 0 if in_use[0].stats()["saved"] == 0 else 1) == 0


def test_training_in_the_child_with_the_parents_context_is_plain_or_refused(in_use):
    def work():
        w = torch.randn(128, 128, requires_grad=True)
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                with in_use[0]:
                    loss = (torch.randn(256, 128) @ w).tanh().sum()
                loss.backward()
            return 7 if any("parent process" in str(w.message) for w in warned) else 8
        except frostline.Error as error:
            return 7 if "parent process" in str(error) else 9

    assert in_child(work) == 7


def test_a_child_may_open_its_own(in_use, tmp_path):
    (tmp_path / "child").mkdir()

    def work():
        offload = frostline.offload(dram="128KiB", min_bytes="16KiB", swap=tmp_path / "child",
                                    pmem=tmp_path / "child" / "pmem", pmem_bytes="1MiB",
                                    swap_bytes="16MiB")
        x = torch.randn(256, 128, requires_grad=True)
        (plain,) = torch.autograd.grad(x.exp().tanh().exp().tanh().sum(), x)
        with offload:
            loss = x.exp().tanh().exp().tanh().sum()
        (gradient,) = torch.autograd.grad(loss, x)
        return 0 if bits(plain) == bits(gradient) and bytes_moved_out_of(offload) else 1

    assert in_child(work) == 0
    with pytest.raises(frostline.Error, match="in use"):
        frostline.offload(dram="1MiB", pmem=in_use[0].stats()["tiers"]["pmem"]["location"])


def test_forks_while_moves_are_in_flight(tight, seed):
    for _ in range(6):
        x = torch.randn(512, 128, requires_grad=True)
        with tight:
            y = x
            for _ in range(8):
                y = y.exp().tanh()
            assert in_child(lambda: 0) == 0
            for _ in range(8):
                y = y.exp().tanh()
        y.sum().backward()
        assert torch.isfinite(x.grad).all()


def test_children_that_drop_everything_or_exit_through_the_interpreter(run_script):
    """Not only through os._exit: atexit functions run, and modules are taken down."""
    done = run_script("""
import gc, os, signal, sys, torch, frostline
offload = frostline.offload(dram="256KiB", min_bytes="16KiB", pmem="pmem", pmem_bytes="1MiB",
                            swap=".", swap_bytes="64MiB")
x = torch.randn(256, 128, requires_grad=True)
def wait_for(child, expected):
    _, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == expected, status
    assert os.path.exists("pmem"), "the child removed the file"
with offload:
    y = x
    for _ in range(20):
        y = y.exp().tanh()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        sys.exit(5)
    wait_for(child, 5)
child = os.fork()
if child == 0:
    signal.alarm(30)
    del y
    gc.collect()
    del offload
    gc.collect()
    os._exit(0)
wait_for(child, 0)
y.sum().backward()
assert torch.isfinite(x.grad).all()
""")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((128,), float(index))


def test_a_data_loader_with_workers(tight, seed):
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=32, num_workers=2)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(128, 128), nn.Tanh()) for _ in range(4)])
    total = 0.0
    for _ in range(2):
        with tight:
            for batch in loader:
                loss = model(batch.repeat(16, 1)).pow(2).mean()
                loss.backward()
                total += float(batch.sum())
    assert total == 2 * 128 * sum(range(64))
    assert tight.stats()["saved"] > 0
