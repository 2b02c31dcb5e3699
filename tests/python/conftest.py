"""Fixtures: a seed, and offload objects that are checked for budgets and leaks when a test ends."""

import gc
import os
import sys
from pathlib import Path

import pytest
import torch

import frostline

ROOT = Path(__file__).resolve().parents[2]

# What has been imported stays; collecting is quicker without it.
gc.collect()
gc.freeze()
# Two threads of a busy machine wait for each other; what needs several says so.
torch.set_num_threads(1)
SEED = int(os.environ.get("FROSTLINE_SEED", "1"))

# Small enough for tests, and page-sized parts are worth moving.
TIGHT = {"dram": "1MiB", "min_bytes": "16KiB", "pmem_bytes": "1MiB", "swap_bytes": "256MiB"}


def pytest_report_header():
    return f"FROSTLINE_SEED={SEED}, torch {torch.__version__}, frostline {frostline.__version__}"


@pytest.fixture
def seed():
    """The seed of random content; printed, so that a failure can be run again."""
    print(f"FROSTLINE_SEED={SEED}")
    torch.manual_seed(SEED)
    return SEED


@pytest.fixture
def open_offload(tmp_path):
    """Opens frostline.offload with three tight tiers, or what the keywords say.

    When the test ends, no tier may ever have exceeded its budget, and nothing may be left in one.
    """
    opened = []

    def build(**options):
        number = len(opened)
        merged = {**TIGHT, "pmem": tmp_path / f"pmem-{number}", "swap": tmp_path, **options}
        for path, size in (("pmem", "pmem_bytes"), ("swap", "swap_bytes")):
            if merged[path] is None:
                merged[size] = None
        offload = frostline.offload(**merged)
        opened.append(offload)
        return offload

    yield build
    gc.collect()
    for offload in opened:
        offload.close()
        for name, tier in offload.stats()["tiers"].items():
            assert tier["peak_bytes"] <= tier["budget_bytes"], f"{name} exceeded its budget"
            assert tier["used_bytes"] == 0, f"{name} still holds {tier['used_bytes']} bytes"


@pytest.fixture
def tight(open_offload):
    """An offload object with three tight tiers."""
    return open_offload()


@pytest.fixture
def run_script(tmp_path):
    """Runs Python source in a process of its own; the completed process, with output as text."""
    import subprocess

    def run(source, *arguments, timeout_s=60):
        return subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", source, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=tmp_path,
        )

    return run
