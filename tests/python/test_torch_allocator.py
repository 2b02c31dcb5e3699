"""frostline.torch: enabling, refusing, and what torch.cuda then says of memory.

What is enabled holds until its process ends, so each test plays its scene in a process of its own.
"""

import re
from pathlib import Path

import pytest
from emulated_cuda import LIBRARY

import frostline

HERE = Path(__file__).resolve().parent
DOCUMENTATION = HERE.parents[1] / "docs" / "pytorch.md"

OPENING = f"""
import sys, warnings
sys.path.insert(0, {str(HERE)!r})
import torch
import frostline
from stand_in_cuda import StandIn

def refused(kind, what, *arguments, **keywords):
    try:
        frostline.torch.enable(*arguments, **keywords)
    except kind as error:
        assert what in str(error), error
    else:
        raise AssertionError("was not refused")
    assert not frostline.torch.enabled()
"""


@pytest.fixture
def play(run_script, monkeypatch):
    """Plays a scene with the emulated driver; it must end well and say nothing on stderr."""
    monkeypatch.setenv("FROSTLINE_CUDA_DRIVER", str(LIBRARY.resolve()))
    monkeypatch.setenv("FROSTLINE_EMULATOR_MEMORY", "256MiB")
    monkeypatch.setenv("FROSTLINE_EMULATOR_DEVICES", "2")
    monkeypatch.setenv("FROSTLINE_EMULATOR_LEAKS", "0")

    def run(scene):
        done = run_script(OPENING + scene)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""

    return run


def test_a_pytorch_without_cuda_is_named(play):
    play("""
refused(frostline.Error, "no CUDA")
""")


def test_it_is_enabled_once_and_in_time(play):
    play("""
cuda = StandIn()
torch.cuda._initialized = True
refused(frostline.Error, "before the first tensor")
torch.cuda._initialized = False
cuda.used = True
refused(frostline.Error, "Can't swap")
cuda.used = False
for wrong in ({"budget": "much"}, {"chunk": "3MiB"}, {"budget": -1}, {"budget": "1MiB"}):
    refused(frostline.InvalidArgument, "", **wrong)
assert cuda.current is None
frostline.torch.enable(budget="64MiB")
assert frostline.torch.enabled()
try:
    frostline.torch.enable()
except frostline.Error as error:
    assert "before" in str(error)
else:
    raise AssertionError("enabled twice")
""")


def test_what_is_wrong_in_the_environment_is_named(play, monkeypatch):
    monkeypatch.setenv("FROSTLINE_TORCH_BUGDET", "64MiB")
    play("""
cuda = StandIn()
refused(frostline.InvalidArgument, "FROSTLINE_TORCH_BUGDET is no setting")
refused(frostline.InvalidArgument, "FROSTLINE_TORCH_BUDGET", budget="64MiB")
""")
    monkeypatch.delenv("FROSTLINE_TORCH_BUGDET")
    monkeypatch.setenv("FROSTLINE_TORCH_CHUNK", "3MiB")
    play("""
cuda = StandIn()
refused(frostline.InvalidArgument, "FROSTLINE_TORCH_CHUNK: '3MiB' is no chunk")
""")


def test_the_examples_of_the_documentation_run(play):
    examples = re.findall(r"^```python\n(.*?)^```$", DOCUMENTATION.read_text(), re.M | re.S)
    assert len(examples) == 2
    for example in examples:
        play("cuda = StandIn()\ncuda.add_pools()\n" + example)


def test_all_hooks_are_set_to_the_functions(play):
    play("""
from stand_in_cuda import POOL_SETTERS, SETTERS
cuda = StandIn()
frostline.torch.enable(budget="64MiB")
assert set(cuda.current.hooks) == {*SETTERS, *POOL_SETTERS}
assert len(set(cuda.current.hooks.values())) == len(cuda.current.hooks)
""")


def test_a_pytorch_that_tells_nothing_of_pools_is_warned_of(play):
    play("""
cuda = StandIn(pools=False)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    frostline.torch.enable(budget="64MiB")
assert any("graphs" in str(each.message) for each in said), said
""")


def test_torch_cuda_tells_of_memory(play):
    play("""
MIB = 1 << 20
cuda = StandIn(devices=2)
for broken in (torch.cuda.memory._C._cuda_memoryStats, torch._C._cuda_memorySnapshot):
    try:
        broken(0)
    except RuntimeError:
        pass
    else:
        raise AssertionError("the stand-in is not strict")
frostline.torch.enable(budget="64MiB", chunk="2MiB")
cuda.initialize()
assert torch.cuda.memory_allocated() == 0 and torch.cuda.memory_reserved(1) == 0
assert torch.cuda.mem_get_info() == (1 << 30, 2 << 30)

first = cuda.current.malloc(10 * MIB)
second = cuda.current.malloc(1000)
other = cuda.current.malloc(3 * MIB, 1)
assert torch.cuda.memory_allocated() == 10 * MIB + 1000
assert torch.cuda.memory_allocated("cuda:1") == 3 * MIB
assert torch.cuda.memory_reserved() >= 12 * MIB
cuda.current.raw_delete(first)
assert torch.cuda.memory_allocated() == 1000
assert torch.cuda.max_memory_allocated() == 10 * MIB + 1000
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() == 1000
stats = torch.cuda.memory_stats()
assert stats["allocation.all.allocated"] == 2 and stats["allocation.all.freed"] == 1
assert stats["num_ooms"] == 0
torch.cuda.reset_accumulated_memory_stats()
assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0

assert torch.cuda.mem_get_info(0)[0] == 64 * MIB - torch.cuda.memory_reserved()
cuda.free_bytes = MIB
assert torch.cuda.mem_get_info(torch.device("cuda")) == (MIB, 2 << 30)

before = torch.cuda.memory_reserved()
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() < before
assert "Allocated memory" in torch.cuda.memory_summary()
assert "Allocated memory" in torch.cuda.memory_summary(1, abbreviated=True)

segments = torch.cuda.memory_snapshot()
assert [segment["device"] for segment in segments] == [0, 1]
assert segments[0]["blocks"][0]["address"] == second
assert segments[0]["total_size"] == torch.cuda.memory_reserved()
assert segments[1]["allocated_size"] == 3 * MIB

torch.cuda.set_per_process_memory_fraction(0.125, 0)
assert torch.cuda.mem_get_info(0)[0] <= 32 * MIB
cuda.current.raw_delete(second)
cuda.current.raw_delete(other)
assert torch.cuda.memory_allocated() == 0
assert cuda.current.malloc(0) is None
""")


def test_pools_are_given_an_allocator_that_returns_null(play):
    play("""
cuda = StandIn()
pool = frostline.torch.allocator().allocator()
assert cuda.current is None and not frostline.torch.enabled()
assert pool.malloc(1 << 40) is None
address = pool.malloc(1 << 20)
assert address
pool.raw_delete(address)
""")


@pytest.mark.skipif(not Path(frostline.__file__).with_name("_c10.so").exists(),
                    reason="the headers of PyTorch, which _c10.so is built with, are not there")
def test_a_training_step_runs_in_a_heap_of_cpu_memory(play):
    play("""
def train():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(),
                                torch.nn.Linear(512, 64))
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(5):
        loss = model(torch.randn(128, 256)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
    return losses

plain = train()
kept = torch.ones(1000)
for budget, words in ((0, "'0' is no room"), ("0GiB", "'0GiB' is no room"), ("1KiB", "one chunk"),
                      ("lots", "'lots'")):
    try:
        frostline.torch.enable_cpu(budget)
    except frostline.InvalidArgument as error:
        assert words in str(error), error
    else:
        raise AssertionError(budget)
frostline.torch.enable_cpu("256MiB")
del kept  # of PyTorch's own allocator
assert train() == plain
import gc
gc.collect()
stats = frostline.torch.cpu_stats()
assert stats["allocations"] > 100 and stats["mapped_bytes"] > 0, stats
assert stats["live_bytes"] < 1 << 20, stats
try:
    torch.empty(1 << 29, dtype=torch.uint8)
except torch.OutOfMemoryError as error:
    assert "CPU tensors" in str(error) and "budget" in str(error), error
else:
    raise AssertionError("more than the budget")
try:
    frostline.torch.enable_cpu()
except frostline.Error as error:
    assert "already" in str(error)
else:
    raise AssertionError("enabled twice")

# Worker processes are forked, and have tensors of their own.
data = torch.utils.data.TensorDataset(torch.arange(64.0))
loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2)
assert sum(batch.sum().item() for (batch,) in loader) == 2016
assert torch.empty(0).numel() == 0
""")
