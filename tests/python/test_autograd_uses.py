"""Every way in which autograd uses saved tensors gives the bits that it gives without offload."""

import contextlib
import sys
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from twin_runs import assert_same_bits, bits, bytes_moved_out_of, compare

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])


def blocks(count=8, width=96):
    return nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.2))
                         for _ in range(count))


def gradients(layers):
    return [p.grad for p in layers.parameters()]


@pytest.mark.parametrize("around", ["forward", "forward and backward"])
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
@pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])
def test_checkpointing(reentrant, nested, around, tight, seed):
    if nested and not reentrant and TORCH < (2, 1):
        pytest.skip("this torch cannot nest non-reentrant checkpoints")

    def program(context):
        layers = blocks()
        x = torch.randn(384, 96, requires_grad=True)

        def pair(first, x):
            for layer in layers[first:first + 2]:
                x = (checkpoint(layer, x, use_reentrant=reentrant) if nested else layer(x))
            return x

        def forward():
            y = x
            for first in range(0, len(layers), 2):
                y = checkpoint(pair, first, y, use_reentrant=reentrant).tanh().exp()
            return y.sum()

        if around == "forward":
            with context:
                loss = forward()
            loss.backward()
        else:
            with context:
                loss = forward()
                loss.backward()
        return [loss, x.grad] + gradients(layers)

    compare(program, tight, seed)


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_parts_of_forward_without_gradient(mode, tight, seed):
    def program(context):
        layers = blocks()
        x = torch.randn(384, 96)
        with context:
            with getattr(torch, mode)():
                teacher = x
                for layer in layers:
                    teacher = layer(teacher)
            teacher = teacher.clone()
            y = x
            for layer in layers:
                y = layer(y)
            loss = ((y - teacher) * teacher).pow(2).mean()
        loss.backward()
        return [loss] + gradients(layers)

    compare(program, tight, seed)


@pytest.mark.parametrize("around", ["forward", "both"])
def test_double_backward(around, tight, seed):
    def program(context):
        layers = blocks()
        x = torch.randn(256, 96, requires_grad=True)

        def forward():
            y = x
            for layer in layers:
                y = layer(y)
            return y.pow(2).sum()

        with context:
            loss = forward()
            if around == "both":
                (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
                loss = loss + gradient.pow(2).sum()
        if around == "forward":
            (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
            loss = loss + gradient.pow(2).sum()
        loss.backward()
        return [loss, gradient, x.grad] + gradients(layers)

    compare(program, tight, seed)


def test_c29_two_backwards_through_one_graph(tight, seed):
    def program(context):
        layers = blocks()
        with context:
            y = torch.randn(512, 96)
            for layer in layers:
                y = layer(y)
            loss = y.pow(2).mean()
        loss.backward(retain_graph=True)
        first = [g.clone() for g in gradients(layers)]
        loss.backward()
        return first + gradients(layers)

    compare(program, tight, seed)


def test_c29_a_saved_tensor_may_be_unpacked_many_times(tight, seed):
    x = torch.randn(128, 96, requires_grad=True)
    with tight:
        results = [x.exp()]
        for _ in range(30):
            results.append(results[-1].tanh())
    expected = [bits(r) for r in results]
    nodes = [r.grad_fn for r in results]
    del results
    for _ in range(2):
        for index in (5, 0, 30, 17, 5, 29):
            assert bits(nodes[index]._saved_result) == expected[index]
    many = [node._saved_result for node in nodes]
    assert [bits(one) for one in many] == expected


def test_gradients_of_a_part_of_the_graph(tight, seed):
    def program(context):
        x = torch.randn(256, 96, requires_grad=True)
        with context:
            branches = [x.mul(scale).exp().tanh().exp() for scale in range(1, 9)]
        results = []
        for index in (3, 0, 7):
            results += torch.autograd.grad(branches[index].sum(), x)
        return results

    compare(program, tight, seed)


def test_backward_on_another_thread(tight, seed):
    def program(context):
        layers = blocks()
        with context:
            y = torch.randn(512, 96)
            for layer in layers:
                y = layer(y)
            loss = y.pow(2).mean()
        worker = threading.Thread(target=loss.backward)
        worker.start()
        worker.join(60)
        assert not worker.is_alive()
        return [loss] + gradients(layers)

    compare(program, tight, seed)


class SavesBoth(torch.autograd.Function):
    """Saves an input, an output and an intermediate."""

    @staticmethod
    def forward(ctx, x, y):
        inner = x * y
        out = inner.sin()
        ctx.save_for_backward(x, y, inner, out)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, y, inner, out = ctx.saved_tensors
        slope = grad * inner.cos() + 0 * out
        return slope * y, slope * x


def test_own_functions_that_save_inputs_outputs_and_intermediates(tight, seed):
    def program(context):
        x = torch.randn(256, 96, requires_grad=True)
        w = torch.randn(256, 96, requires_grad=True)
        with context:
            y = x
            for _ in range(10):
                y = SavesBoth.apply(y, w) + y
            loss = y.sum()
        loss.backward()
        return [loss, x.grad, w.grad]

    compare(program, tight, seed)


@pytest.mark.parametrize("device", ["meta"])
def test_backward_under_another_default_device(device, tight, seed):
    """What comes back goes where it was, whatever factories do meanwhile."""
    if TORCH < (2, 0):
        pytest.skip("this torch has no default device")
    x = torch.randn(256, 96, requires_grad=True)
    reference = torch.autograd.grad(x.exp().tanh().exp().tanh().sum(), x)[0]
    with tight:
        y = x.exp().tanh().exp().tanh().sum()
        for _ in range(20):
            y = y + 0 * x.exp().tanh().sum()
    saved = bytes_moved_out_of(tight)
    with torch.device(device):
        y.backward()
    assert saved > 0
    assert torch.equal(x.grad, reference)


def test_hooks_of_others_inside_and_outside(tight, seed):
    def program(context):
        x = torch.randn(256, 96, requires_grad=True)
        outer = torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t)
        with outer, context:
            y = x.exp().tanh()
            with torch.autograd.graph.save_on_cpu():
                y = y.exp().tanh()
            for _ in range(8):
                y = y.exp().tanh()
        y.sum().backward()
        return [x.grad]

    compare(program, tight, seed)


def test_entered_twice_and_again(tight, seed):
    def program(context):
        x = torch.randn(256, 96, requires_grad=True)
        y = x
        with context, context:
            for _ in range(6):
                y = y.exp().tanh()
        y = y.sin()
        with context:
            for _ in range(6):
                y = y.exp().tanh()
        y.sum().backward()
        return [x.grad]

    compare(program, tight, seed)


@pytest.mark.parametrize("shared_input", [False, True], ids=["own input", "shared input"])
def test_several_threads_with_one_offload_object(shared_input, tight, seed):
    threads, rounds = 4, 4
    torch.manual_seed(seed)
    inputs = [torch.randn(128, 96) for _ in range(threads)]
    if shared_input:
        inputs = inputs[:1] * threads
    weights = [torch.randn(96, 96).div_(10) for _ in range(threads)]

    def work(index, context):
        results = []
        for _ in range(rounds):
            w = weights[index].clone().requires_grad_()
            with context:
                y = inputs[index] @ w
                for _ in range(8):
                    y = (y @ w).tanh().exp()
                loss = y.sum() + (inputs[index] * (inputs[index] @ w)).sum()
            loss.backward()
            results.append(w.grad)
        return results

    plain = [work(index, contextlib.nullcontext()) for index in range(threads)]
    outcomes = [None] * threads

    def guarded(index):
        try:
            outcomes[index] = work(index, tight)
        except BaseException as error:  # noqa: B902 (shown by the main thread)
            outcomes[index] = error

    workers = [threading.Thread(target=guarded, args=(index,)) for index in range(threads)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads meet at more places
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(120)
    finally:
        sys.setswitchinterval(interval)
    assert not any(worker.is_alive() for worker in workers)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    assert_same_bits(plain, outcomes)
    assert bytes_moved_out_of(tight) > 0
