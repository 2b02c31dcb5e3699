"""Budgets are hard (C37, C40), and what fits nowhere stays where it is, with right results."""

import contextlib
import warnings

import pytest
import torch
from torch import nn

from tier_bytes import used_bytes, wait_until
from twin_runs import assert_same_bits, bytes_moved_out_of, compare, train


def program(context):
    model = nn.Sequential(*[nn.Sequential(nn.Linear(96, 96), nn.Tanh()) for _ in range(10)])
    x = torch.randn(256, 96)
    return train(model, lambda model: model(x).pow(2).mean(), context)


ONE_TENSOR = 256 * 96 * 4


@pytest.mark.parametrize("dram", [0, 1, 4096, ONE_TENSOR - 1, ONE_TENSOR, ONE_TENSOR + 1,
                                  3 * ONE_TENSOR, "100KB"])
def test_any_dram_budget_gives_the_same_bits(dram, open_offload, seed):
    offload = open_offload(dram=dram)
    compare(program, offload, seed)
    assert offload.stats()["tiers"]["dram"]["peak_bytes"] <= offload.stats()["tiers"]["dram"][
        "budget_bytes"]
    assert offload.stats()["passed_through"] < offload.stats()["saved"] * 3


def test_the_peak_is_never_above_the_budget_at_any_moment(open_offload, seed):
    offload = open_offload(dram="300KiB")
    compare(program, offload, seed)
    timeline = offload.timeline()
    for name, tier in offload.stats()["tiers"].items():
        assert max(timeline[name]) <= tier["budget_bytes"]
        assert len(timeline[name]) == len(timeline["time_s"])
    assert timeline["time_s"] == sorted(timeline["time_s"])


@pytest.mark.parametrize("dram", [0, ONE_TENSOR, "256MiB"])
def test_only_dram(dram, open_offload, seed):
    offload = open_offload(dram=dram, pmem=None, swap=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        compare(program, offload, seed, must_move=False)
    assert list(offload.stats()["tiers"]) == ["dram"]


def test_a_tensor_beyond_every_budget_passes_through_with_one_warning(open_offload, seed):
    offload = open_offload(dram="64KiB", pmem=None, swap_bytes="64KiB")
    torch.manual_seed(seed)
    plain = program(contextlib.nullcontext())
    torch.manual_seed(seed)
    with pytest.warns(RuntimeWarning) as warned:
        offloaded = program(offload)
    assert_same_bits(plain, offloaded)
    assert len(warned) == 1
    message = str(warned[0].message)
    assert "frostline" in message and "stay in the process's memory" in message
    assert "98304" in message and ("budget" in message or "capacity" in message), message
    assert offload.stats()["saved"] == 0


@pytest.mark.parametrize("pmem", [True, False], ids=["pmem and swap", "swap"])
def test_lower_tiers_full(pmem, open_offload, seed):
    lower = {"swap_bytes": "400KiB"}
    if not pmem:
        lower["pmem"] = None
    offload = open_offload(dram="128KiB", **lower)

    def deep(context):
        model = nn.Sequential(*[nn.Sequential(nn.Linear(96, 96), nn.Tanh()) for _ in range(30)])
        x = torch.randn(256, 96)
        return train(model, lambda model: model(x).pow(2).mean(), context)

    with pytest.warns(RuntimeWarning, match="frostline") as warned:
        compare(deep, offload, seed)
    assert len(warned) == 1
    assert offload.stats()["tiers"]["swap"]["open"]
    assert offload.stats()["tiers"]["swap"]["peak_bytes"] > 300 << 10, "swap was not used up"


def test_room_that_was_given_back_is_used_again(open_offload, seed):
    """Twenty graphs go through tiers that hold one and a half."""
    offload = open_offload(dram="200KiB", pmem=None, swap_bytes="1500KiB")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20):
            compare(program, offload, seed)
            wait_until(lambda: sum(used_bytes(offload).values()) == 0)
    assert bytes_moved_out_of(offload) > 20 * ONE_TENSOR


def test_tensors_of_many_sizes(open_offload, seed):
    def mixed(context):
        parts = [torch.randn(size, requires_grad=True)
                 for size in (5000, 100_000, 17_777, 250_000, 4096, 60_001) * 4]
        with context:
            loss = sum(part.exp().tanh().sum() for part in parts)
        loss.backward()
        return [part.grad for part in parts]

    compare(mixed, open_offload(dram="600KiB"), seed)


def test_moves_and_stalls_are_counted(open_offload, seed):
    offload = open_offload(dram="200KiB")
    compare(program, offload, seed)
    stats = offload.stats()
    tiers = stats["tiers"]
    assert stats["saved"] == stats["dropped"] > 0
    assert stats["hits"] + stats["use_stalls"] > 0
    assert stats["stalls"] == stats["use_stalls"] + stats["store_stalls"]
    assert stats["stall_s"] >= 0 and stats["failed_moves"] == 0
    assert tiers["pmem"]["label"] in ("real", "emulated") and tiers["dram"]["label"] == "real"
    moved_up = sum(tiers[name]["moved_out_bytes"] for name in ("pmem", "swap"))
    assert moved_up > 0, "nothing ever came back from the lower tiers"
