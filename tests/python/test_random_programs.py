"""Random programs of views, in-place changes and reuse have the gradients of plain autograd."""

import random

import pytest
import torch

from twin_runs import compare


class Program:
    """A program drawn from a seed; running it again gives the same operations."""

    SIDE = 96

    def __init__(self, seed, length=40):
        self.seed, self.length = seed, length

    def __call__(self, context):
        self.random = random.Random(self.seed)
        side = self.SIDE
        leaves = [torch.randn(side, side).div_(10).requires_grad_() for _ in range(3)]
        with context:
            alive = [leaf * 1.0 for leaf in leaves]
            for _ in range(self.length):
                self.step(alive)
            loss = sum(tensor.sum() for tensor in alive + [leaf.sin() for leaf in leaves])
        order = self.random.choice(["backward", "grad", "twice"])
        if order == "grad":
            return list(torch.autograd.grad(loss, leaves)) + [loss]
        loss.backward(retain_graph=order == "twice")
        if order == "twice":
            loss.backward()
        return [leaf.grad for leaf in leaves] + [loss]

    def step(self, alive):
        draw = self.random
        a, b = draw.choice(alive), draw.choice(alive)
        kind = draw.choice([self.unary, self.binary, self.view, self.change, self.wide])
        result = kind(a, b)
        if len(alive) < 6 or draw.random() < 0.3:
            alive.append(result)
        else:
            alive[draw.randrange(len(alive))] = result
        if len(alive) > 8:
            alive.pop(0)

    def unary(self, a, _):
        operation = self.random.choice(["tanh", "sigmoid", "sin", "relu", "softmax", "norm"])
        if operation == "softmax":
            return a.softmax(self.random.randrange(2))
        if operation == "norm":
            return torch.nn.functional.layer_norm(a, (self.SIDE,))
        return getattr(torch, operation)(a)

    def binary(self, a, b):
        operation = self.random.choice(["mul", "matmul", "addcmul", "where", "maximum", "self"])
        if operation == "mul":
            return (a * b).tanh()
        if operation == "matmul":
            return (a @ b).tanh()
        if operation == "addcmul":
            return torch.addcmul(a, a.tanh(), b.sin())
        if operation == "where":
            return torch.where(a > b, a.sin() * b, b.tanh())
        if operation == "maximum":
            return torch.maximum(a, b)
        return a * a.sigmoid()

    def view(self, a, b):
        side, half = self.SIDE, self.SIDE // 2
        operation = self.random.choice(["transpose", "slices", "expand", "strided", "chunks"])
        if operation == "transpose":
            return a.t() * b.sin()
        if operation == "slices":
            wide = torch.cat([a, b]).tanh()
            start = self.random.randrange(side)
            return wide[start:start + side] * wide[side - start:2 * side - start]
        if operation == "expand":
            return a[:, :1].expand(side, side) * b.tanh()
        if operation == "strided":
            both = torch.cat([a, b]).sigmoid()
            return both[::2] * both[1::2]
        left, right = a.tanh().chunk(2)
        return torch.cat([right * left.sin(), left * b[:half]])

    def change(self, a, b):
        """In-place changes of tensors that nothing has saved, or whose result is saved anew."""
        fresh = a + b
        operation = self.random.choice(["mul_", "relu_", "copy_", "index", "tanh_"])
        if operation == "mul_":
            return fresh.mul_(0.5).tanh()
        if operation == "relu_":
            return fresh.relu_() * a.sin()
        if operation == "copy_":
            fresh[self.SIDE // 3:].copy_(b[self.SIDE // 3:].tanh())
            return fresh.sin()
        if operation == "index":
            fresh[:, ::3] = a[:, ::3] * b[:, ::3]
            return fresh.tanh()
        return fresh.tanh_() * fresh

    def wide(self, a, b):
        stacked = torch.stack([a, b, a.sin(), b.tanh()])
        first, second = stacked.view(2, 2, self.SIDE, self.SIDE).unbind(1)
        return torch.einsum("nij,nij->ij", first.tanh(), second).tanh()


@pytest.mark.parametrize("number", range(12))
def test_random_program(number, open_offload, seed):
    draw = random.Random(f"{seed} {number}")
    tiers = {"dram": draw.choice(["256KiB", "1MiB", 0, "100KiB"]),
             "verify": draw.random() < 0.5,
             "min_bytes": draw.choice([1, "16KiB"])}
    if draw.random() < 0.5:
        tiers["pmem"] = None
    print(f"program {number}: {tiers}")
    program = Program(f"{seed} {number} operations")
    compare(program, open_offload(**tiers), seed + number, must_move=False)


def test_the_programs_do_move_bytes_and_differ(open_offload, seed):
    """Or else the comparison above shows nothing."""
    offload = open_offload(dram="256KiB")
    results = [compare(Program(f"{seed} {n}", 80), offload, seed)[0].sum().item() for n in range(3)]
    assert len(set(results)) == 3
