"""The comparison: it must fail on the smallest difference, and say which one."""

import math
import struct

import pytest

import compare
from kinds import DEVICE


def next_float(value):
    """The float after `value`: one bit in the last place."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return struct.unpack("<d", struct.pack("<q", bits + 1))[0]


def test_same_losses_pass(make_run):
    check = compare.check_losses([make_run("plain")] * 2, [make_run("offloaded")] * 2)
    assert check.passed


def test_last_bit_of_one_loss_fails(make_run):
    plain = make_run("plain", losses=(5.5, 4.25))
    offloaded = make_run("offloaded", losses=(5.5, next_float(4.25)))
    check = compare.check_losses([plain], [make_run("offloaded"), offloaded])
    assert not check.passed
    assert check.detail.startswith("step 2: plain 0x1.1000000000000p+2, offloaded 0x1.1")


def test_sign_of_zero_is_a_difference(make_run):
    plain, offloaded = make_run("plain", losses=(0.0,)), make_run("offloaded", losses=(-0.0,))
    assert not compare.check_losses([plain], [offloaded]).passed


@pytest.mark.parametrize("losses", [(5.5,), (5.5, 4.25, 4.0), ()])
def test_other_number_of_steps_fails(make_run, losses):
    offloaded = make_run("offloaded", losses=losses)
    assert not compare.check_losses([make_run("plain")], [offloaded]).passed


def test_nan_and_no_losses_at_all_fail(make_run):
    for losses in [(math.nan, math.nan), ()]:
        runs = [make_run("plain", losses=losses)], [make_run("offloaded", losses=losses)]
        assert not compare.check_losses(*runs).passed


def test_differing_plain_runs_blame_the_machine(make_run):
    plain = [make_run("plain"), make_run("plain", losses=(5.5, 4.0))]
    check = compare.check_losses(plain, [make_run("offloaded")])
    assert not check.passed and "not deterministic" in check.detail


def test_differing_weights_fail(make_run):
    runs = [make_run("plain")], [make_run("offloaded", weights="cd" * 32)]
    assert not compare.check_weights(*runs, "sha256").passed


def test_one_byte_over_budget_fails(make_run):
    tiers = make_run("offloaded", dram=256 << 20)["stats"]["tiers"]
    assert compare.check_budgets(tiers).passed
    tiers["dram"]["peak_bytes"] += 1
    check = compare.check_budgets(tiers)
    assert not check.passed and check.detail.startswith("dram held 268435457 bytes")


def test_unused_tier_fails(make_run):
    tiers = make_run("offloaded", pmem=0)["stats"]["tiers"]
    check = compare.check_tiers_used(tiers)
    assert not check.passed and check.detail == "never used: pmem"


@pytest.mark.parametrize("key", ["moved_in_bytes", "moved_out_bytes"])
def test_a_tier_through_which_nothing_moves_fails(make_run, key):
    tiers = make_run("offloaded")["stats"]["tiers"]
    tiers["swap"][key] = 0
    assert compare.check_tiers_used(tiers).detail == "never used: swap"


def test_one_byte_over_the_limit_of_the_device_fails(make_device_run):
    within = make_device_run("offloaded", peak_device=50 << 20, limit=50 << 20)
    over = make_device_run("offloaded", peak_device=(50 << 20) + 1, limit=50 << 20)
    assert compare.check_limit([within], DEVICE).passed
    check = compare.check_limit([within, over], DEVICE)
    assert not check.passed and check.detail.startswith("an offloaded run took 52428801 bytes")


def test_misuse_of_the_driver_fails(make_device_run):
    plain, offloaded = make_device_run("plain"), make_device_run("offloaded")
    assert compare.check_misuse([plain, offloaded]).passed
    offloaded["misuses"] = 1
    assert not compare.check_misuse([plain, offloaded]).passed


def test_saving_in_words():
    assert compare.describe_saving(2 << 30, 1 << 30) == "50 % less (1.00 GiB)"
    assert compare.describe_saving(1 << 30, 3 << 29) == "50 % more (512 MiB)"
