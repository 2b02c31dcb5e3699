"""Paths of the demo, a way to run it, and made-up results of training runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "bench" / "demo" / "demo.py"
STAND_IN = Path(__file__).resolve().parent / "stand_in"

sys.path.insert(0, str(DEMO.parent))

# A model so small that a demo run is little more than importing torch twice.
TINY = "--layers 1 --width 32 --heads 2 --context 32 --batch 4 --steps 2 --rounds 1".split()


def stand_in_environment(fault):
    """The environment in which `import frostline` finds the stand-in, with a fault or without."""
    paths = [str(STAND_IN), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "STAND_IN_FAULT": fault}


def demo_command(*arguments):
    return [sys.executable, str(DEMO), *map(str, arguments)]


@pytest.fixture
def run_tiny(tmp_path):
    """Runs a tiny demo on the stand-in with the given fault; the finished process."""

    def run(fault="", *arguments):
        (tmp_path / "work").mkdir(exist_ok=True)
        places = ["--workdir", tmp_path / "work", "--out", tmp_path / "report"]
        text = ["--text", Path(__file__)]
        return subprocess.run(
            demo_command(*TINY, *text, *places, *arguments),
            env=stand_in_environment(fault),
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


@pytest.fixture
def make_device_run(make_run):
    """Builds the result of one run of frostline_train, as device_trainer.py makes it."""

    def build(mode, peak_device=100 << 20, limit=None, **values):
        result = make_run(mode, **values)
        del result["peak_rss_bytes"]
        kernels = {"start_s": [10.0, 14.0, 15.0], "end_s": [12.0, 14.5, 16.0], "bytes": [0, 0, 0]}
        copies = {"start_s": [14.25], "end_s": [15.25], "bytes": [1 << 20]}
        result.update(
            kind="device",
            peak_device_bytes=peak_device,
            kept_bytes=90 << 20,
            marks=[[mark[0], mark[-1]] for mark in result["marks"]],
            resident=None,
            threads=None,
            torch=None,
            frostline="0.1.0",
            device="Frostline emulated device (emulated)",
            links="emulated links: 250 MB/s to the device, 250 MB/s from it",
            operations={"kernel": kernels, "to_device": copies},
            misuses=0,
        )
        if mode == "offloaded":
            result["limit_bytes"] = limit
            tier = result["stats"]["tiers"]["dram"]
            result["stats"]["tiers"]["device"] = {**tier, "kind": "device", "label": "emulated"}
            result["timeline"]["device"] = [50 << 20, 60 << 20, 10 << 20]
        return result

    return build


@pytest.fixture
def make_run():
    """Builds the result of one child process, as train.py writes it, from its losses."""

    def build(mode, losses=(5.5, 4.25), weights="ab" * 32, peak_rss=2 << 30, step_s=2.0, **tiers):
        marks = [[10 + i * step_s + part * step_s / 3 for part in range(4)] for i in range(3)]
        result = {
            "kind": "process",
            "mode": mode,
            "losses": list(losses),
            "losses_hex": [float(loss).hex() for loss in losses],
            "weights_hash": weights,
            "parameters": 1_000_000,
            "marks": marks,
            "resident_before_bytes": 300 << 20,
            "peak_rss_bytes": peak_rss,
            "resident": [[10 + i / 10, (300 + i) << 20, 0] for i in range(60)],
            "activations": {"bytes": 1 << 30, "storages": 3, "by_size": []},
            "threads": 2,
            "torch": "2.13.0",
            "frostline": None,
            "operations": None,
        }
        if mode == "offloaded":
            result["frostline"] = "0.1.0"
            result["stats"] = {"tiers": make_tiers(**tiers), "stalls": 1, "stall_s": 0.5}
            result["timeline"] = {
                "time_s": [10.0, 12.0, 14.0],
                "dram": [100 << 20, 250 << 20, 0],
                "pmem": [0, 300 << 20, 0],
                "swap": [0, 400 << 20, 0],
            }
        return result

    return build


def make_tiers(dram=250 << 20, pmem=300 << 20, swap=400 << 20):
    """Stats of the three tiers with these peaks; budgets 256, 341 and 1024 MiB."""
    budgets = {"dram": 256 << 20, "pmem": 341 << 20, "swap": 1024 << 20}
    peaks = {"dram": dram, "pmem": pmem, "swap": swap}
    return {
        name: {
            "kind": name,
            "label": "emulated" if name == "pmem" else "real",
            "budget_bytes": budgets[name],
            "used_bytes": 0,
            "peak_bytes": peaks[name],
            "moved_in_bytes": 3 * peaks[name],
            "moved_out_bytes": 3 * peaks[name],
            "open": True,
        }
        for name in budgets
    }
