"""A file system that fills up in the middle of a run costs nothing but room (C33)."""

import ctypes
import os
import subprocess

import pytest
import torch
from torch import nn

from twin_runs import assert_same_bits, bytes_moved_out_of, train

LIBC = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MiB; a folder of a shared one where mounting is not permitted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if LIBC.mount(b"none", os.fsencode(folder), b"tmpfs", 0, b"size=4m,mode=700") != 0:
        pytest.skip(f"mounting is not permitted here: {os.strerror(ctypes.get_errno())}")
    yield folder
    assert LIBC.umount2(os.fsencode(folder), 2) == 0  # detach, even if a test left a file open


def deep(context, steps=2):
    model = nn.Sequential(*[nn.Sequential(nn.Linear(128, 128), nn.Tanh()) for _ in range(24)])
    x = torch.randn(512, 128)  # 256 KiB each, 6 MiB in all
    return train(model, lambda model: model(x).pow(2).mean(), context, steps)


def compare_with_plain(offload, seed, steps=2):
    import contextlib

    torch.manual_seed(seed)
    plain = deep(contextlib.nullcontext(), steps)
    torch.manual_seed(seed)
    assert_same_bits(plain, deep(offload, steps))


def fill(folder):
    """Takes all of the room that is left."""
    with open(folder / "filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 4096)
        except OSError as error:
            return error


@pytest.mark.filterwarnings("ignore:frostline")
@pytest.mark.parametrize("verify", [False, True])
def test_swap_on_a_disk_that_is_smaller_than_its_limit(verify, small_disk, open_offload, seed):
    offload = open_offload(dram="512KiB", pmem=None, swap=small_disk, verify=verify)
    compare_with_plain(offload, seed)
    swap = offload.stats()["tiers"]["swap"]
    assert 0 < swap["peak_bytes"] <= 4 << 20


@pytest.mark.filterwarnings("ignore:frostline")
def test_the_disk_fills_up_between_two_steps(small_disk, open_offload, seed):
    offload = open_offload(dram="512KiB", pmem=None, swap=small_disk, swap_bytes="64MiB")
    compare_with_plain(offload, seed, steps=1)
    assert bytes_moved_out_of(offload) > 0
    peak = offload.stats()["tiers"]["swap"]["peak_bytes"]
    assert fill(small_disk).errno == 28
    compare_with_plain(offload, seed, steps=2)
    assert offload.stats()["tiers"]["swap"]["peak_bytes"] <= max(peak, 4 << 20)


@pytest.mark.filterwarnings("ignore:frostline")
def test_the_disk_fills_up_in_the_middle_of_forward(small_disk, open_offload, seed):
    offload = open_offload(dram="512KiB", pmem=None, swap=small_disk, swap_bytes="64MiB")

    class Fills(nn.Module):
        def forward(self, x):
            if not (small_disk / "filler").exists() and isinstance(self.context, type(offload)):
                fill(small_disk)
            return x

    def program(context):
        model = nn.Sequential(*[nn.Sequential(nn.Linear(128, 128), nn.Tanh()) for _ in range(24)])
        filler = Fills()
        filler.context = context
        model.insert(8, filler)
        x = torch.randn(512, 128)
        return train(model, lambda model: model(x).pow(2).mean(), context)

    import contextlib

    torch.manual_seed(seed)
    plain = program(contextlib.nullcontext())
    torch.manual_seed(seed)
    assert_same_bits(plain, program(offload))
    assert (small_disk / "filler").exists()


def test_a_pmem_file_that_does_not_fit_is_refused_and_removed(small_disk):
    import frostline

    with pytest.raises(frostline.NoSpace, match="cannot allocate 8388608 bytes") as caught:
        frostline.offload(dram="1MiB", pmem=small_disk / "pmem", pmem_bytes="8MiB")
    assert str(small_disk / "pmem") in str(caught.value)
    assert os.listdir(small_disk) == []


def test_pmem_is_preallocated_so_that_a_full_disk_cannot_hurt_it(small_disk, open_offload, seed):
    offload = open_offload(dram="512KiB", pmem=small_disk / "pmem", pmem_bytes="3MiB",
                           swap_bytes="64MiB")
    fill(small_disk)
    compare_with_plain(offload, seed)
    assert offload.stats()["tiers"]["pmem"]["peak_bytes"] > 2 << 20
    assert offload.stats()["tiers"]["swap"]["peak_bytes"] > 0, "swap takes what pmem cannot"


def test_no_room_at_all_is_an_error_at_once(small_disk):
    import frostline

    fill(small_disk)
    with pytest.raises(frostline.NoSpace) as caught:
        frostline.offload(dram="1MiB", swap=small_disk)
    assert str(small_disk) in str(caught.value)


def test_a_read_only_file_system(small_disk):
    import frostline

    if subprocess.run(["mount", "-o", "remount,ro", str(small_disk)]).returncode != 0:
        pytest.skip("remounting is not permitted here")
    with pytest.raises(frostline.Error, match="Read-only") as caught:
        frostline.offload(dram="1MiB", swap=small_disk)
    assert str(small_disk) in str(caught.value)
    with pytest.raises(frostline.Error, match="Read-only"):
        frostline.offload(dram="1MiB", pmem=small_disk / "pmem")
