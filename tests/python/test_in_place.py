"""A saved tensor that was changed in place is an error, as without offload; never a wrong gradient.

Where the right bytes were already elsewhere when the change came, right gradients are as good.
"""

import pytest
import torch

from tier_bytes import untyped, wait_until
from test_views import keep
from twin_runs import bits, bytes_moved_out_of


def change_by_multiplying(y):
    y.mul_(2)


def change_by_a_view(y):
    y[3:5].zero_()


def change_transposed(y):
    y.t().add_(1)


def change_without_gradient(y):
    with torch.no_grad():
        y.copy_(torch.zeros_like(y))


def change_detached(y):
    y.detach().sub_(1)


CHANGES = [change_by_multiplying, change_by_a_view, change_transposed, change_without_gradient,
           change_detached]
BUDGETS = {"in DRAM": "64MiB", "beyond DRAM": "128KiB", "without DRAM": 0}


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_after_saving(change, budget, open_offload, seed):
    x = torch.randn(128, 128, requires_grad=True)
    (right,) = torch.autograd.grad(x.exp().sum(), x)
    y = x.exp()  # exp saves its result
    change(y)
    with pytest.raises(RuntimeError, match="inplace"):
        y.sum().backward()

    offload = open_offload(dram=BUDGETS[budget])
    with offload:
        y = x.exp()
        change(y)
        loss = y.sum()
    expected = right if change is change_detached else None
    try:
        (gradient,) = torch.autograd.grad(loss, x)
    except RuntimeError as error:
        assert "inplace" in str(error)
        return
    assert budget != "in DRAM", "the change went unnoticed"
    if expected is not None:
        assert bits(gradient) == bits(expected)


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_saved_bytes_are_those_of_the_time_of_saving(budget, open_offload, seed):
    offload = open_offload(dram=BUDGETS[budget])
    y = torch.randn(128, 128)
    content = bits(y)
    with offload:
        node = keep(y)
        others = [keep(torch.randn(128, 128)) for _ in range(8)]
    y.add_(1)
    try:
        (back,) = node.saved_tensors
    except RuntimeError as error:
        assert "inplace" in str(error)
        return
    assert bits(back) == content
    del others


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_tensor_saved_changed_and_saved_again(budget, open_offload, seed):
    """The second saving sees the change; the first does not, or says that it cannot."""
    offload = open_offload(dram=BUDGETS[budget])
    y = torch.randn(128, 128)
    before = bits(y)
    with offload:
        first = keep(y)
        y.add_(1)
        second = keep(y)
    after = bits(y)
    del y
    with offload:
        others = [keep(torch.randn(128, 128)) for _ in range(16)]
    assert bits(second.saved_tensors[0]) == after
    try:
        (back,) = first.saved_tensors
    except RuntimeError as error:
        assert "inplace" in str(error)
    else:
        assert bits(back) == before
    del others


def test_changes_before_saving_are_no_error(tight, seed):
    x = torch.randn(128, 128, requires_grad=True)
    with tight:
        y = (x * 1).mul_(2).add_(1)
        loss = y.relu_().exp().sum()
    loss.backward()
    z = x.detach().clone().requires_grad_()
    (z * 1).mul_(2).add_(1).relu_().exp().sum().backward()
    assert bits(x.grad) == bits(z.grad)


def test_an_evicted_tensor_is_not_changed_by_its_successor_in_memory(tight, seed):
    """The allocator gives the freed memory to the next tensor, which may be changed at will."""
    x = torch.randn(256, 128, requires_grad=True)
    reference = x.detach().clone().requires_grad_()
    y = reference
    for _ in range(24):
        y = y.exp().tanh()
    y.sum().backward()
    with tight:
        y = x
        for _ in range(24):
            y = y.exp().tanh()
            scratch = torch.empty(256, 128)
            scratch.fill_(float("nan"))
    wait_until(lambda: bytes_moved_out_of(tight) > 0)
    y.sum().backward()
    assert bits(x.grad) == bits(reference.grad)


@pytest.mark.parametrize("how", ["tensor", "storage"])
def test_a_storage_that_was_resized_while_it_waited_is_not_read_where_it_was(how, open_offload,
                                                                             seed):
    """Its memory lies elsewhere by then, and another tensor may lie in its old place."""
    offload = open_offload(dram="512KiB")
    w = torch.ones(32 << 10, requires_grad=True)
    with offload:
        x = torch.full((32 << 10,), 3.0)
        y = x * w
        if how == "tensor":
            x.resize_(4 << 20)
        else:
            untyped(x).resize_(16 << 20)
        del x
        z = torch.full((32 << 10,), 0.25, requires_grad=True)
        for _ in range(12):
            z = z.tanh()
    try:
        y.sum().backward()
    except RuntimeError as error:
        assert "inplace" in str(error)
        return
    assert bits(w.grad) == bits(torch.full((32 << 10,), 3.0))
