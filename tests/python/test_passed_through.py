"""What cannot be moved, or not with profit, passes through untouched and comes back as it was."""

import pytest
import torch
from torch import nn

from test_views import keep
from twin_runs import bits

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])


class Tagged(torch.Tensor):
    """A subclass, which may have state of its own."""


def quantised():
    if "qint8" not in dir(torch) or not torch.backends.quantized.supported_engines:
        pytest.skip("this torch has no quantised tensors")
    return torch.quantize_per_tensor(torch.randn(128, 128), 0.1, 3, torch.qint8)


UNMOVABLE = {
    "small": lambda: torch.randn(8, 8),
    "zero bytes": lambda: torch.randn(0, 128),
    "sparse": lambda: torch.randn(128, 128).relu().to_sparse(),
    "sparse rows": lambda: torch.randn(128, 128).relu().to_sparse_csr(),
    "quantised": quantised,
    "meta": lambda: torch.empty(128, 128, device="meta"),
    "conjugate": lambda: torch.randn(128, 128, dtype=torch.complex64).conj(),
    "subclass": lambda: torch.randn(128, 128).as_subclass(Tagged),
    "negated": lambda: torch.randn(128, 128, dtype=torch.complex64).conj().imag,
}


@pytest.mark.filterwarnings("ignore")  # torch's own, of kinds that are in beta or on their way out
@pytest.mark.parametrize("kind", UNMOVABLE)
def test_unmovable_tensors_pass_through(kind, tight, seed):
    tensor = UNMOVABLE[kind]()
    before = tight.stats()["passed_through"]
    with tight:
        node = keep(tensor)
    assert tight.stats()["saved"] == 0
    assert tight.stats()["passed_through"] == before + 1
    (back,) = node.saved_tensors
    assert type(back) is type(tensor)
    assert back.layout == tensor.layout and back.dtype == tensor.dtype
    assert back.device == tensor.device and back.shape == tensor.shape
    if tensor.device.type == "meta":
        return
    if tensor.is_quantized:
        assert torch.equal(back.int_repr(), tensor.int_repr())
    elif tensor.layout is torch.strided:
        assert back.is_conj() == tensor.is_conj() and back.is_neg() == tensor.is_neg()
        assert bits(back.resolve_conj().resolve_neg()) == bits(tensor.resolve_conj().resolve_neg())
    else:
        assert bits(back.to_dense()) == bits(tensor.to_dense())


def test_a_tensor_made_in_inference_mode_passes_through_or_fails_as_in_plain_torch(tight, seed):
    with torch.inference_mode():
        x = torch.randn(128, 128)
    w = torch.randn(128, 128, requires_grad=True)
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        w * x
    with tight, pytest.raises(RuntimeError, match="[Ii]nference"):
        w * x


@pytest.mark.filterwarnings("ignore")
def test_subclasses_keep_their_class(tight, seed):
    x = torch.randn(256, 128).as_subclass(Tagged).requires_grad_()
    with tight:
        y = (x.exp() * x).tanh()
        assert type(y) is Tagged
        loss = y.sum()
    loss.backward()
    torch.manual_seed(seed)
    z = torch.randn(256, 128).requires_grad_()
    (z.exp() * z).tanh().sum().backward()
    assert bits(x.grad.as_subclass(torch.Tensor)) == bits(z.grad)


def sparse_product(x):
    indices = torch.arange(0, 128).repeat(2, 1)
    matrix = torch.sparse_coo_tensor(indices, torch.arange(128.0), (128, 128))
    return torch.sparse.mm(matrix, x).tanh()


def test_a_sparse_operand_beside_dense_ones(tight, seed):
    x = torch.randn(128, 256, requires_grad=True)
    (plain,) = torch.autograd.grad(sparse_product(x).sum(), x)
    with tight:
        y = sparse_product(x)
    (offloaded,) = torch.autograd.grad(y.sum(), x)
    assert bits(plain) == bits(offloaded)


@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp"])
def test_function_transforms_are_right_or_refused_by_torch(transform, tight, seed):
    if TORCH < (2, 0):
        pytest.skip("this torch has no torch.func")
    x = torch.randn(64, 128)

    def square(v):
        return (v.exp().tanh() * v).sum()

    def run():
        if transform == "grad":
            return torch.func.grad(square)(x)
        if transform == "vmap":
            w = torch.randn(128, requires_grad=True)
            torch.manual_seed(seed)
            torch.func.vmap(lambda row: square(row * w))(x).sum().backward()
            return w.grad
        return torch.func.jvp(square, (x,), (x,))[1]

    torch.manual_seed(seed)
    plain = run()
    torch.manual_seed(seed)
    try:
        with tight:
            offloaded = run()
    except RuntimeError as error:
        assert "saved tensor hooks" in str(error), error  # torch's own refusal
        return
    assert bits(plain) == bits(offloaded)


def test_c30_compiled_code_is_right(tight, seed):
    if TORCH < (2, 1):
        pytest.skip("this torch does not compile for this Python")
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 128), nn.GELU())
    compiled = torch.compile(model, backend="aot_eager")
    x = torch.randn(512, 128)
    results = []
    for context in (None, tight, tight):
        model.zero_grad()
        if context is None:
            loss = compiled(x).pow(2).mean()
        else:
            with context:
                loss = compiled(x).pow(2).mean()
        loss.backward()
        results.append([bits(loss)] + [bits(p.grad) for p in model.parameters()])
    assert results[1] == results[0] and results[2] == results[0]
    torch._dynamo.reset()
