"""Parameters and buffers live on anyway: they are not stored, and never moved."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from twin_runs import bits, bytes_moved_out_of, train

SIDE = 128
BYTES = SIDE * SIDE * 4


def small_input():
    """So small that only parameters are worth storing."""
    return torch.randn(4, SIDE)


class Transposed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(SIDE, SIDE))

    def forward(self, x):
        return (x @ self.weight.t()).tanh() @ self.weight[:, :64]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(SIDE, SIDE)
        self.head = nn.Linear(SIDE, SIDE, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(x @ self.embed.weight)


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(SIDE, SIDE) for _ in range(3)])
        self.layers[1].weight.requires_grad_(False)
        self.register_buffer("table", torch.randn(SIDE, SIDE))
        self.register_buffer("absent", None)

    def forward(self, x):
        return self.layers(x) @ self.table


class OfAModuleThatIsNotCalled(nn.Module):
    """The weight belongs to a child that never runs itself, as in many attention modules."""

    def __init__(self):
        super().__init__()
        self.child = nn.Linear(SIDE, SIDE)

    def forward(self, x):
        return functional.linear(x, self.child.weight, self.child.bias)


@pytest.mark.parametrize("build", [Transposed, Tied, Frozen, lambda: nn.LSTM(SIDE, SIDE)],
                         ids=["transposed", "tied", "frozen and buffers", "lstm"])
def test_parameters_of_modules_are_not_stored(build, tight, seed):
    model = build()
    with tight:
        out = model(small_input())
        out = out[0] if isinstance(out, tuple) else out
    # Fused recurrences save scratch space, too, but that is small here.
    assert tight.stats()["saved_bytes"] < BYTES, tight.stats()
    assert tight.stats()["passed_through"] > 0
    out.sum().backward()


def test_a_parameter_whose_own_module_is_not_called(tight, seed):
    model = nn.Sequential(*[OfAModuleThatIsNotCalled() for _ in range(3)])
    with tight:
        out = model(small_input())
    assert bytes_moved_out_of(tight) == 0
    out.sum().backward()


def test_parameters_outside_of_any_module_are_never_moved(open_offload, seed):
    offload = open_offload(dram="4MiB")
    weights = [nn.Parameter(torch.randn(SIDE, SIDE)) for _ in range(8)]
    addresses = [w.data_ptr() for w in weights]
    for _ in range(60):
        with offload:
            y = small_input()
            for w in weights:
                y = (y @ w).tanh()
        y.sum().backward()
    assert bytes_moved_out_of(offload) == 0
    assert addresses == [w.data_ptr() for w in weights]


def test_weights_replaced_between_steps(tight, seed):
    model = nn.Sequential(nn.Linear(SIDE, SIDE), nn.Linear(SIDE, SIDE))
    for _ in range(4):
        with tight:
            out = model(small_input())
        out.sum().backward()
        model[0].weight = nn.Parameter(torch.randn(SIDE, SIDE))
        model[1].weight.data = torch.randn(SIDE, SIDE)
        model.zero_grad()
    assert tight.stats()["saved"] == 0


def test_lazy_modules_become_known_when_they_have_their_weights(tight, seed):
    model = nn.Sequential(nn.LazyLinear(SIDE), nn.ReLU(), nn.LazyLinear(SIDE))
    reference = None
    for turn in range(2):
        saved = tight.stats()["saved"]
        x = torch.ones(4, SIDE)
        with tight:
            loss = model(x).pow(2).sum()
        loss.backward()
        gradients = [bits(p.grad) for p in model.parameters()]
        reference = reference or gradients
        assert gradients == reference
        model.zero_grad()
        if turn == 1:
            assert tight.stats()["saved"] == saved


def test_modules_that_have_been_scripted(tight, seed):
    model = torch.jit.script(nn.Sequential(nn.Linear(SIDE, SIDE), nn.Tanh(), nn.Linear(SIDE, 8)))
    with tight:
        loss = model(torch.randn(512, SIDE)).sum()
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_activations_beside_parameters_are_stored(tight, seed):
    model = nn.Sequential(nn.Linear(SIDE, SIDE), nn.Tanh(), nn.Linear(SIDE, SIDE), nn.Tanh())
    with tight:
        loss = model(torch.randn(256, SIDE)).sum()
    assert tight.stats()["saved"] == 3  # the input and both results of tanh
    loss.backward()


def test_an_optimizer_may_change_weights_that_were_saved(tight, seed):
    """As in plain training: between backward and the next forward."""
    model = nn.Sequential(*[nn.Linear(SIDE, SIDE) for _ in range(4)])
    x = torch.randn(512, SIDE)
    import contextlib

    torch.manual_seed(seed)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    plain = train(model, lambda m: m(x).pow(2).mean(), contextlib.nullcontext(), 4)
    model.load_state_dict(state)
    offloaded = train(model, lambda m: m(x).pow(2).mean(), tight, 4)
    assert [bits(t) for t in plain] == [bits(t) for t in offloaded]
