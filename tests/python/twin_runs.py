"""Runs one program plain and offloaded, from the same seed, and compares the results bit by bit."""

import contextlib

import torch


def bits(tensor):
    """The bytes of a tensor's elements: equal for equal NaNs, different for 0.0 and -0.0."""
    dense = tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    return bytes(dense.view(torch.uint8).numpy()) if dense.numel() else b""


def assert_same_bits(plain, offloaded):
    """Lists of tensors (or nested lists) must agree in number, geometry and every bit."""
    assert len(plain) == len(offloaded)
    for index, (left, right) in enumerate(zip(plain, offloaded)):
        if isinstance(left, (list, tuple)):
            assert_same_bits(left, right)
            continue
        assert left.shape == right.shape and left.dtype == right.dtype, f"result {index}"
        assert bits(left) == bits(right), f"result {index} differs from the plain run"


def compare(program, offload, seed, must_move=True):
    """Runs `program(context)`, which returns tensors; `context` is to be entered for forward.

    With `must_move`, bytes have to have left DRAM, as otherwise the comparison shows nothing.
    """
    torch.manual_seed(seed)
    plain = program(contextlib.nullcontext())
    torch.manual_seed(seed)
    offloaded = program(offload)
    assert_same_bits(plain, offloaded)
    if must_move:
        assert bytes_moved_out_of(offload) > 0, offload.stats()
    return offloaded


def bytes_moved_out_of(offload):
    """Bytes that were written to the lower tiers."""
    tiers = offload.stats()["tiers"]
    return sum(tier["moved_in_bytes"] for name, tier in tiers.items() if name != "dram")


def train(model, loss_of, context, steps=2):
    """Trains for some steps; losses, gradients and, at the end, all state."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    results = []
    for _ in range(steps):
        optimizer.zero_grad()
        with context:
            loss = loss_of(model)
        loss.backward()
        results.append(loss.detach().clone())
        results += [p.grad.clone() for p in model.parameters() if p.grad is not None]
        optimizer.step()
    return results + [value.clone() for value in model.state_dict().values()]
