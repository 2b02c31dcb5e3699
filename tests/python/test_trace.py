"""What trace() gives is a "frostline-trace 1": the births and uses of one step, in order."""

import importlib.util
import os
import stat

import pytest
import torch
from torch import nn

import frostline
from conftest import ROOT
from twin_runs import train

REFEREE = ROOT.parent / "shared" / "referee" / "referee.py"


def parse(text):
    """The tensors {id: (bytes, class)} and kernels (duration, name, reads, writes) of a trace."""
    lines = text.splitlines()
    assert lines[0] == "frostline-trace 1"
    assert text.endswith("\n")
    tensors, kernels = {}, []
    for line in lines[1:]:
        words = line.split(" ")
        if line.startswith("#"):
            continue
        if words[0] == "tensor":
            _, number, size, kind = words
            assert int(number) not in tensors and int(size) > 0 and not kernels
            tensors[int(number)] = (int(size), kind)
            continue
        assert words[0] == "kernel", line
        _, index, duration, name, reads, writes = words
        assert int(index) == len(kernels) and int(duration) >= 0 and name
        ids = [[] if part == "-" else [int(i) for i in part.split(",")] for part in (reads, writes)]
        assert all(i in tensors for part in ids for i in part)
        kernels.append((int(duration), name, *ids))
    return tensors, kernels


@pytest.fixture
def traced(tight, seed):
    model = nn.Sequential(*[nn.Sequential(nn.Linear(96, 96), nn.Tanh()) for _ in range(8)])
    x = torch.randn(256, 96)
    for _ in range(2):
        train(model, lambda model: model(x).pow(2).mean(), tight, steps=1)
        tight.step()
    return tight


def test_the_last_step_is_traced(traced):
    tensors, kernels = parse(traced.trace())
    assert len(tensors) == 9  # the input and eight results of tanh
    assert {size for size, _ in tensors.values()} == {256 * 96 * 4}
    written = [i for kernel in kernels for i in kernel[3]]
    assert sorted(written) == sorted(tensors), "each is born exactly once"
    seen = set()
    for _, _, reads, writes in kernels:
        assert seen.issuperset(reads), "read before it was born"
        seen.update(writes)
    first_uses = list(dict.fromkeys(i for kernel in kernels for i in kernel[2]))
    assert first_uses == sorted(first_uses, key=written.index, reverse=True), "backward reverses"


def test_a_step_that_is_not_over_is_not_in_the_trace(traced):
    before = parse(traced.trace())
    x = torch.randn(256, 96, requires_grad=True)
    with traced:
        y = x.exp().tanh()
    assert parse(traced.trace()) == before
    y.sum().backward()
    traced.step()
    assert len(parse(traced.trace())[0]) == 2


def test_an_empty_step(tight):
    tight.step()
    assert parse(tight.trace()) == ({}, [])


def test_write_trace_replaces_a_file_at_once(traced, tmp_path):
    path = tmp_path / "trace.txt"
    path.write_text("old")
    os.chmod(path, 0o644)
    traced.write_trace(path)
    assert path.read_text() == traced.trace()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [name for name in os.listdir(tmp_path) if name.startswith("trace")] == ["trace.txt"]


def test_write_trace_into_a_place_that_is_not_there(traced, tmp_path):
    with pytest.raises(frostline.Error, match="missing/trace.txt"):
        traced.write_trace(tmp_path / "missing" / "trace.txt")
    (tmp_path / "folder").mkdir()
    with pytest.raises(frostline.Error, match="folder"):
        traced.write_trace(tmp_path / "folder")
    assert os.listdir(tmp_path / "folder") == []


def test_the_referee_reads_the_trace(traced, tmp_path):
    """The judge of schedules lies beside the tree, where there is one."""
    if not REFEREE.exists():
        print("there is no shared/referee/referee.py beside this tree: only parsed here")
        return
    spec = importlib.util.spec_from_file_location("referee", REFEREE)
    referee = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(referee)
    traced.write_trace(tmp_path / "trace.txt")
    tensors, kernels = referee.read_trace(str(tmp_path / "trace.txt"))
    assert (tensors, [tuple(k) for k in kernels]) == parse(traced.trace())
