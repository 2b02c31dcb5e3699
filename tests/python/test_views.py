"""One storage, one copy (C25, C44): views keep their geometry and share what comes back."""

import pytest
import torch

from tier_bytes import storage_address, used_bytes, wait_until
from twin_runs import bits, bytes_moved_out_of


class Keep(torch.autograd.Function):
    """Saves the tensors it is given, and hands them out through `grad_fn.saved_tensors`."""

    @staticmethod
    def forward(ctx, anchor, *tensors):
        ctx.save_for_backward(*tensors)
        return anchor.clone()

    @staticmethod
    def backward(ctx, grad):
        return (grad,) + (None,) * len(ctx.saved_tensors)


def keep(*tensors):
    """The node that saved the tensors."""
    return Keep.apply(torch.zeros(1, requires_grad=True), *tensors).grad_fn


def push_out(offload, kibibytes=2048):
    """Fills DRAM with other data, so that what was there leaves; the nodes hold that data."""
    with offload:
        nodes = [keep(torch.full((64 << 10,), index, dtype=torch.uint8))
                 for index in range(kibibytes // 64)]
    wait_until(lambda: bytes_moved_out_of(offload) > 0)
    return nodes


def make_views():
    whole = torch.randn(64, 128)
    views = {
        "whole": whole,
        "transposed": whole.t(),
        "sliced": whole[10:20, 5:-5],
        "strided": whole[::3, ::2],
        "expanded": whole[:, :1].expand(64, 50),
        "flat": whole.view(-1)[100:],
        "as_strided": whole.as_strided((8, 8), (3, 7), 11),
        "bytes": whole.view(torch.int32),
        "empty": whole[5:5],
        "scalar": whole[3, 4],
    }
    return views


@pytest.mark.parametrize("evicted", [False, True], ids=["in DRAM", "evicted"])
def test_views_keep_geometry_and_dtype_and_share_storage(evicted, tight, seed):
    views = make_views()
    geometry = {name: (v.shape, v.stride(), v.storage_offset(), v.dtype)
                for name, v in views.items()}
    content = {name: bits(v) for name, v in views.items()}
    with tight:
        node = keep(*views.values())
    assert tight.stats()["saved"] == 1
    assert tight.stats()["saved_bytes"] == 64 * 128 * 4
    names = list(views)
    del views
    others = push_out(tight) if evicted else None
    back = dict(zip(names, node.saved_tensors))
    for name, view in back.items():
        assert (view.shape, view.stride(), view.storage_offset(), view.dtype) == geometry[name]
        assert bits(view) == content[name], name
    del others


def test_the_same_tensor_saved_by_many_operations_is_stored_once(tight, seed):
    x = torch.randn(128, 128, requires_grad=True)
    with tight:
        y = x.exp()
        nodes = [(y * y).sin().sum(), (y @ y.t()).sum(), y.pow(3).sum()]
        keep(y)
    stored = tight.stats()["saved_bytes"] // (128 * 128 * 4)
    # exp's result; the squares, which sin saves; the product, whose sum saves nothing.
    assert stored == 2, tight.stats()
    sum(nodes).backward()


def test_a_storage_saved_again_after_its_graph_died_is_stored_again(tight, seed):
    y = torch.randn(128, 128)
    with tight:
        for turn in range(1, 4):
            node = keep(y)
            assert tight.stats()["saved"] == turn
            del node
    wait_until(lambda: sum(used_bytes(tight).values()) == 0)


def test_what_is_still_alive_elsewhere_comes_back_as_the_same_memory(tight, seed):
    y = torch.randn(128, 128)
    with tight:
        node = keep(y, y.t(), y[3:7])
    # Moving it would free nothing; where torch does not tell who uses a storage, it may move.
    others = push_out(tight) if hasattr(torch._C, "_storage_Use_Count") else None
    whole, transposed, part = node.saved_tensors
    del others
    assert storage_address(whole) == storage_address(y)
    assert storage_address(transposed) == storage_address(y)
    assert part.data_ptr() == y[3:7].data_ptr()


def test_nothing_is_charged_twice_while_what_came_back_is_saved_again(tight, seed):
    y = torch.randn(128, 128)
    content = bits(y)
    with tight:
        node = keep(y)
        del y
        others = push_out(tight)
        (again,) = node.saved_tensors
        second = keep(again)
        del again
    assert bits(second.saved_tensors[0]) == content
    assert bits(node.saved_tensors[0]) == content
    del others


@pytest.mark.parametrize("evicted", [False, True], ids=["in DRAM", "evicted"])
def test_the_last_alias_frees_the_storage(evicted, tight, seed):
    y = torch.randn(128, 128)
    with tight:
        first, second = keep(y.t()), keep(y[2:])
    del y
    others = push_out(tight) if evicted else []
    count = tight.stats()["dropped"]
    del first
    assert tight.stats()["dropped"] == count
    assert second.saved_tensors[0].shape == (126, 128)
    del second
    assert tight.stats()["dropped"] == count + 1
    del others


@pytest.mark.parametrize("shape", [(1,), (4096,), (4097,), (3, 5, 7, 11, 13)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int64", "int8",
                                   "bool", "complex64", "complex128"])
def test_every_dtype_and_odd_sizes_come_back(dtype, shape, open_offload, seed):
    offload = open_offload(dram="128KiB", min_bytes=1, verify=True)
    dtype = getattr(torch, dtype)
    source = (torch.randn(shape) * 50).to(dtype)
    content = bits(source)
    with offload:
        node = keep(source)
    del source
    others = push_out(offload, 512)
    (back,) = node.saved_tensors
    assert back.dtype == dtype and back.shape == shape
    assert bits(back) == content
    del others


def test_a_slice_of_a_storage_beyond_the_dram_budget(open_offload, seed):
    """A batch cut out of a data set that lies in memory: right, and nothing exceeds its budget."""
    offload = open_offload(dram="256KiB")
    data = torch.randn(4096, 128)
    weight = torch.randn(128, 128, requires_grad=True)
    reference = torch.autograd.grad((data[:64] @ weight).sum(), weight)[0]
    with offload:
        loss = (data[:64] @ weight).sum()
    (gradient,) = torch.autograd.grad(loss, weight)
    assert bits(gradient) == bits(reference)
