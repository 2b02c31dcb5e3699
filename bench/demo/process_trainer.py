"""Trains with PyTorch in processes of their own, whose activations go to Frostline or do not."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Callable

from children import Child, run_child
from settings import MIB, MIN_OFFLOAD_BYTES, Plan, UsageError, default_threads, tier_budgets
from workspace import check_tier_space, memory_notes

TRAIN = Path(__file__).with_name("train.py")
SEED = 20


def check_packages() -> None:
    for package, advice in (
        ("torch", "install PyTorch for this Python"),
        ("frostline", "build the project and put build/python on PYTHONPATH"),
    ):
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"the Python package {package} is missing: {advice}")


def read_event(line: bytes) -> dict | None:
    """What train.py says on standard output; libraries may print lines of their own there."""
    return json.loads(line) if line.startswith(b'{"event"') else None


class ProcessTrainer:
    """See rounds.Trainer. `folder` has the text and is for everything that a run writes; the pmem
    file lies in `pmem_folder` if that is given."""

    def __init__(self, plan: Plan, folder: Path, pmem_folder: Path | None, threads: int | None):
        self._plan = plan
        self._folder = folder
        self._pmem_folder = pmem_folder
        self._pmem = (pmem_folder or folder) / f"{folder.name}.pmem"
        self._threads = threads or default_threads()
        (folder / "swap").mkdir()

    def run(
        self, mode: str, plain: dict | None, on_tick: Callable[[dict | None], None]
    ) -> dict:
        job_file, result = self._folder / "job.json", self._folder / "result.json"
        job = {
            "mode": mode,
            "shape": asdict(self._plan.shape),
            "steps": self._plan.steps,
            "seed": SEED,
            "threads": self._threads,
            "text": str(self._folder / "text"),
            "count_saved": plain is None,
            "tiers": self._tiers(plain) if mode == "offloaded" else None,
            "result": str(result),
        }
        result.unlink(missing_ok=True)
        job_file.write_text(json.dumps(job), encoding="utf-8")
        environment = {**os.environ, "OMP_NUM_THREADS": str(self._threads)}
        command = [sys.executable, str(TRAIN), str(job_file)]
        run_child(Child(mode, command, environment, read_event), self._folder, on_tick)
        return json.loads(result.read_text(encoding="utf-8"))

    def _tiers(self, plain: dict) -> dict:
        """Arguments of frostline.offload, from what the first plain run saved."""
        budgets = tier_budgets(plain["activations"]["bytes"])
        check_tier_space(self._folder, self._pmem_folder, budgets)
        sizes = {name: f"{size // MIB}MiB" for name, size in budgets.items()}
        return {
            "dram": sizes["dram"],
            "pmem": str(self._pmem),
            "swap": str(self._folder / "swap"),
            "min_bytes": f"{MIN_OFFLOAD_BYTES // MIB}MiB",
            "pmem_bytes": sizes["pmem"],
            "swap_bytes": sizes["swap"],
        }

    def clean(self) -> None:
        """Removes the pmem file where it does not lie in the working directory."""
        self._pmem.unlink(missing_ok=True)

    def notes(self) -> list[str]:
        return memory_notes(self._folder)
