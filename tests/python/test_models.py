"""Training with offload gives the losses, gradients and weights of plain training, bit by bit."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional

from twin_runs import assert_same_bits, bytes_moved_out_of, compare, train


class Attention(nn.Module):
    """Saves transposed, expanded and sliced views of one projection."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        joined = self.project(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = joined.permute(2, 0, 3, 1, 4)
        mask = torch.ones(length, length).tril()[None, None].expand(batch, self.heads, -1, -1)
        scores = (query @ key.transpose(-1, -2)).masked_fill(mask == 0, float("-inf"))
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, width)
        return x + self.out(mixed)


def mlp():
    layers = [nn.Sequential(nn.Linear(96, 96), nn.GELU(), nn.Dropout(0.1)) for _ in range(8)]
    x = torch.randn(256, 96)
    return nn.Sequential(*layers), lambda model: model(x).pow(2).mean()


def convolution():
    def block(channels, out):
        convolve = nn.Conv2d(channels, out, 3, padding=1, bias=False)
        return nn.Sequential(convolve, nn.BatchNorm2d(out), nn.ReLU(inplace=True))

    layers = [block(3, 12), block(12, 12), block(12, 12), nn.MaxPool2d(2), block(12, 12)]
    x = torch.randn(8, 3, 32, 32)
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(12 * 16 * 16, 10))
    target = torch.randint(10, (8,))
    return model, lambda model: functional.cross_entropy(model(x), target)


def attention():
    x = torch.randn(8, 48, 64)
    model = nn.Sequential(*[nn.Sequential(nn.LayerNorm(64), Attention()) for _ in range(4)])
    return model, lambda model: model(x).pow(2).mean()


def embedding():
    tokens = torch.randint(500, (64, 32))
    model = nn.Sequential(nn.Embedding(500, 64), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 500))

    def loss_of(model):
        return functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    return model, loss_of


class Recurrent(nn.Module):
    """A recurrence written out, beside the fused one."""

    def __init__(self, width=64):
        super().__init__()
        self.fused = nn.GRU(width, width, batch_first=True)
        self.cell = nn.LSTMCell(width, width)

    def forward(self, x):
        x, _ = self.fused(x)
        state = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        return state[0] * state[1]


def recurrent():
    x = torch.randn(96, 12, 64)
    return Recurrent(), lambda model: model(x).pow(2).mean()


@pytest.mark.parametrize("build", [mlp, convolution, attention, embedding, recurrent],
                         ids=lambda build: build.__name__)
def test_training_is_bit_identical(build, tight, seed):
    def program(context):
        model, loss_of = build()
        return train(model, loss_of, context)

    compare(program, tight, seed)
    assert tight.stats()["tiers"]["dram"]["moved_in_bytes"] > 0, "nothing had to come back"


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("lower", [{"pmem": None}, {"swap": None, "pmem_bytes": "32MiB"}],
                         ids=["swap only", "pmem only"])
def test_one_lower_tier_with_and_without_verification(lower, verify, open_offload, seed):
    def program(context):
        model, loss_of = mlp()
        return train(model, loss_of, context)

    compare(program, open_offload(verify=verify, **lower), seed)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_other_dtypes(dtype, tight, seed):
    dtype = getattr(torch, dtype)

    def program(context):
        model = nn.Sequential(*[nn.Sequential(nn.Linear(96, 96), nn.Tanh()) for _ in range(8)])
        x = torch.randn(1536, 96).to(dtype)
        return train(model.to(dtype), lambda model: model(x).pow(2).mean(), context)

    compare(program, tight, seed)


def test_integer_bool_and_complex_tensors_are_stored(tight, seed):
    def program(context):
        x = torch.randn(128, 256, requires_grad=True)
        order = torch.argsort(torch.randn(128, 256), 1)
        results = []
        with context:
            y = x
            for turn in range(8):
                y = torch.gather(y, 1, order.roll(turn, 0))  # saves int64
                y = torch.where(y > 0, y, y * 0.5)  # saves bool
                y = torch.fft.fft(y).mul(torch.fft.fft(y)).real / 256  # saves complex
        y.sum().backward()
        results.append(x.grad)
        return results

    compare(program, tight, seed)


def test_several_forwards_before_their_backwards_accumulate(tight, seed):
    def program(context):
        model, _ = mlp()
        losses = []
        for _ in range(4):
            x = torch.randn(128, 96)
            with context:
                losses.append(model(x).pow(2).mean() / 4)
        sum(losses).backward()
        return [p.grad for p in model.parameters()] + losses

    compare(program, tight, seed)


@pytest.mark.parametrize("order", [[3, 2, 1, 0], [0, 1, 2, 3], [2, 0, 3, 1]])
def test_backwards_in_any_order(order, tight, seed):
    def program(context):
        model, _ = mlp()
        losses = []
        for _ in range(4):
            x = torch.randn(128, 96)
            with context:
                losses.append(model(x).pow(2).mean())
        for index in order:
            losses[index].backward()
        return [p.grad for p in model.parameters()] + losses

    compare(program, tight, seed)


def test_two_interleaved_models(tight, seed):
    def program(context):
        left, right = mlp()[0], mlp()[0]
        a = b = torch.randn(128, 96)
        with context:
            for one, other in zip(left, right):
                a, b = one(a), other(b)
                a, b = a + 0.1 * b, b - 0.1 * a
        a.sum().backward(retain_graph=True)
        b.sum().backward()
        return [p.grad for model in (left, right) for p in model.parameters()]

    compare(program, tight, seed)


def test_tiers_that_stay_open_over_many_steps(tight, seed):
    def program(context):
        model, loss_of = mlp()
        return train(model, loss_of, context, steps=12)

    compare(program, tight, seed)


def test_a_fresh_object_for_every_step(open_offload, seed):
    torch.manual_seed(seed)
    model, loss_of = mlp()
    plain = train(model, loss_of, contextlib.nullcontext(), steps=1)
    for _ in range(3):
        torch.manual_seed(seed)
        model, loss_of = mlp()
        offload = open_offload()
        assert_same_bits(plain, train(model, loss_of, offload, steps=1))
        assert bytes_moved_out_of(offload) > 0
