"""What autograd lets go of is gone: from the tiers, and from the memory of the process."""

import gc
import weakref

import pytest
import torch
from torch import nn

from twin_runs import bits, bytes_moved_out_of
from tier_bytes import resident_bytes, storage_is_gone, used_bytes, wait_until, weak_storage

MIB = 1 << 20


def deep(layers=12, width=96):
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.Tanh())
                           for _ in range(layers)])


@pytest.mark.parametrize("batch", [128, 512], ids=["within DRAM", "beyond DRAM"])
def test_a_graph_dropped_without_backward_leaves_nothing(batch, tight):
    model = deep()
    with tight:
        loss = model(torch.randn(batch, 96)).sum()
    assert sum(used_bytes(tight).values()) > 0
    del loss
    gc.collect()
    wait_until(lambda: sum(used_bytes(tight).values()) == 0)
    assert tight.stats()["dropped"] == tight.stats()["saved"]


def test_c27_fifty_forwards_without_backward_do_not_grow(tight):
    model = deep()
    peaks = []
    for _ in range(50):
        with tight:
            model(torch.randn(256, 96)).sum()
        peaks.append(sum(used_bytes(tight).values()))
    gc.collect()
    wait_until(lambda: sum(used_bytes(tight).values()) == 0)
    one_graph = 12 * 256 * 96 * 4
    assert max(peaks) <= 2 * one_graph, peaks


def test_an_exception_in_the_middle_of_forward_leaves_nothing_and_the_next_step_works(tight):
    model = deep()
    x = torch.randn(512, 96)
    for _ in range(3):
        try:
            with tight:
                y = model[:6](x)
                raise KeyError("in the middle")
        except KeyError:
            del y
        gc.collect()
        wait_until(lambda: sum(used_bytes(tight).values()) == 0)
    with tight:
        loss = model(x).sum()
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_an_exception_in_backward_leaves_nothing(tight):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("in backward")

    model = deep()
    with tight:
        loss = model[6:](Fails.apply(model[:6](torch.randn(512, 96)))).sum()
    with pytest.raises(ValueError, match="in backward"):
        loss.backward()
    del loss
    gc.collect()
    wait_until(lambda: sum(used_bytes(tight).values()) == 0)


@pytest.mark.parametrize("size_mib", [8, 40])
def test_c42_the_memory_of_an_evicted_tensor_is_given_back_to_the_system(size_mib, open_offload):
    """Tensors of up to 32 MiB come from the heap of the C library, larger ones never do."""
    count = 200 // size_mib
    offload = open_offload(dram=2 * size_mib * MIB, swap_bytes="1GiB", min_bytes="1MiB", pmem=None)
    x = torch.ones(size_mib, MIB // 4, requires_grad=True)
    with offload:
        y = (x * 1.0).exp()
        before = resident_bytes()
        for _ in range(count):
            y = (y * 0.1).exp()
    wait_until(lambda: used_bytes(offload)["dram"] <= 2 * size_mib * MIB)
    grown = resident_bytes() - before
    offloaded = bytes_moved_out_of(offload)
    y.sum().backward()
    assert torch.isfinite(x.grad).all()
    assert offloaded >= (count - 3) * size_mib * MIB
    assert grown < 100 * MIB, f"{grown >> 20} MiB more are resident, of {count * size_mib} saved"


def test_the_storage_of_an_evicted_tensor_dies_while_its_graph_lives(tight):
    x = torch.randn(256, 96, requires_grad=True)
    storages = []
    with tight:
        y = x
        for _ in range(24):
            y = y.exp().tanh()
            storages.append(weak_storage(y))
        del y
        out = x.tanh()
    wait_until(lambda: bytes_moved_out_of(tight) > 0)
    del out
    with tight:
        y = x
        kept = []
        for _ in range(24):
            y = y.exp().tanh()
            kept.append(weak_storage(y))
        loss = y.sum()
    alive = sum(not storage_is_gone(weak) for weak in kept)
    assert alive <= tight.stats()["tiers"]["dram"]["budget_bytes"] // (256 * 96 * 4) + 2
    assert all(storage_is_gone(weak) for weak in storages)
    loss.backward()


def test_entries_do_not_keep_what_the_graph_gave_up(tight):
    """Whoever waits for the end of a tensor's forward use must not keep it alive."""
    x = torch.randn(256, 96, requires_grad=True)
    with tight:
        y = x.tanh()
        weak = weak_storage(y)
        loss = y.exp().sum()
    del y, loss
    gc.collect()
    assert storage_is_gone(weak)


def test_an_unpacked_tensor_outlives_graph_and_eviction(tight, seed):
    """C25: a view of what was unpacked stays good after everything else has gone."""
    x = torch.randn(256, 96, requires_grad=True)
    expected = x.detach().exp()
    with tight:
        y = x.exp()
        last = y.tanh()
        del y
        for _ in range(20):
            last = last.exp().tanh()
    node = last.grad_fn
    while "Exp" not in type(node).__name__ or node.next_functions[0][0].name() != (
            "torch::autograd::AccumulateGrad"):
        node = node.next_functions[0][0]
    view = node._saved_result[10:20]
    del node, last
    gc.collect()
    with tight:
        z = x
        for _ in range(20):
            z = z.exp().tanh()
    del z
    assert bits(view) == bits(expected[10:20])


def test_the_offload_object_itself_can_go_before_the_graph(open_offload):
    import frostline

    x = torch.randn(512, 96, requires_grad=True)
    reference = torch.autograd.grad(x.exp().exp().tanh().sum(), x)[0]
    offload = frostline.offload(dram="256KiB", min_bytes="16KiB", swap=".", swap_bytes="16MiB")
    gone = weakref.ref(offload)
    with offload:
        loss = x.exp().exp().tanh().sum()
    del offload
    gc.collect()
    loss.backward()
    assert bits(x.grad) == bits(reference)
    del loss
    gc.collect()
    assert gone() is None, "the offload object outlives the last graph that used it"


def test_what_is_stored_can_be_read_after_close(tight):
    model = deep()
    x = torch.randn(512, 96)
    model(x).sum().backward()
    reference = [bits(p.grad) for p in model.parameters()]
    model.zero_grad()
    with tight:
        loss = model(x).sum()
    tight.close()
    loss.backward()
    assert [bits(p.grad) for p in model.parameters()] == reference


def test_a_closed_offload_passes_tensors_through_with_one_warning(tight):
    tight.close()
    model = deep()
    x = torch.randn(512, 96)
    with pytest.warns(RuntimeWarning, match="frostline.*closed") as warned:
        with tight:
            loss = model(x).sum()
    loss.backward()
    assert len(warned) == 1
    assert tight.stats()["saved"] == 0
