"""Trains with frostline_train on the device tier, a GPU's or an emulated one."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Callable

from children import Child, run_child
from device_settings import (
    LEARNING_RATE,
    LINK_SCALE,
    PCIE_4_X16_BYTES_PER_S,
    PLAIN_EMULATED_MEMORY,
    device_budgets,
    device_limit,
)
from gpu import Driver
from settings import TIER_TITLES, Plan, UsageError
from workspace import check_tier_space, memory_notes

NS = 1e-9


def check_program(build: Path) -> Path:
    """The trainer that was built. Raises UsageError if it was not."""
    program = build / "bin" / "frostline_train"
    if not os.access(program, os.X_OK):
        raise UsageError(f"{program} is missing: ./run demo --device builds it")
    return program


def read_event(line: bytes) -> dict | None:
    """The table that frostline_train prints, a row after each step."""
    words = line.split()
    if words[:2] == [b"step", b"loss"]:
        return {"event": "ready"}
    if len(words) == 3 and words[0].isdigit():
        return {"event": "step", "index": int(words[0]) - 1}
    return None


def in_seconds(columns: dict[str, list[int]]) -> dict[str, list]:
    """The same columns with monotonic seconds in the place of nanoseconds."""
    return {
        name.replace("_ns", "_s"): [value * NS for value in column] if "_ns" in name else column
        for name, column in columns.items()
    }


def as_rate(setting: str) -> str:
    """A bandwidth of the emulator's settings, which may end in KiB, MiB or GiB, for a person."""
    if not setting.isdigit():
        return f"{setting}/s"
    rate = int(setting)
    return f"{rate / 1e6:.0f} MB/s" if rate else "unlimited"


class DeviceTrainer:
    """See rounds.Trainer. `folder` has the text and is for everything that a run writes; the pmem
    file lies in `pmem_folder` if that is given."""

    def __init__(
        self, plan: Plan, folder: Path, pmem_folder: Path | None, program: Path, driver: Driver
    ):
        self._plan = plan
        self._folder = folder
        self._pmem_folder = pmem_folder
        self._pmem = (pmem_folder or folder) / f"{folder.name}.pmem"
        self._program = program
        self._driver = driver
        self._emulated = False
        (folder / "swap").mkdir()

    def run(
        self, mode: str, plain: dict | None, on_tick: Callable[[dict | None], None]
    ) -> dict:
        report, losses = self._folder / "report.json", self._folder / "losses"
        report.unlink(missing_ok=True)
        shape = [f"--{name}={value}" for name, value in asdict(self._plan.shape).items()]
        command = [
            *[str(self._program), *shape, f"--steps={self._plan.steps}", f"--lr={LEARNING_RATE}"],
            *[f"--text={self._folder / 'text'}", f"--losses={losses}", f"--report={report}"],
            *(self._offload(plain) if mode == "offloaded" else []),
        ]
        environment = self._environment(plain if mode == "offloaded" else None)
        run_child(Child(mode, command, environment, read_event), self._folder, on_tick)
        result = self._result(mode, json.loads(report.read_text(encoding="utf-8")), environment)
        bits = losses.read_text(encoding="ascii").split()
        result["losses_hex"] = [float.fromhex(loss).hex() for loss in bits]
        if mode == "offloaded":
            result["limit_bytes"] = device_limit(plain["peak_device_bytes"])
        return result

    def _offload(self, plain: dict) -> list[str]:
        """Options of frostline_train, from what the first plain run needed."""
        budgets = device_budgets(plain)
        check_tier_space(self._folder, self._pmem_folder, budgets)
        tiers = {
            "device": budgets["device"],
            "dram": budgets["dram"],
            "pmem": self._pmem,
            "pmem_bytes": budgets["pmem"],
            "swap": self._folder / "swap",
            "swap_bytes": budgets["swap"],
        }
        return ["--offload=all", *(f"--tier={name}={value}" for name, value in tiers.items())]

    def _environment(self, plain: dict | None) -> dict[str, str]:
        """That of a run which offloads if `plain` is given: then the emulated device really has
        half the memory. A real driver reads none of the settings of the emulator."""
        link = str(PCIE_4_X16_BYTES_PER_S // LINK_SCALE)
        settings = {
            "FROSTLINE_EMULATOR_MEMORY": PLAIN_EMULATED_MEMORY,
            "FROSTLINE_EMULATOR_H2D_BYTES_PER_S": link,
            "FROSTLINE_EMULATOR_D2H_BYTES_PER_S": link,
            # The last line of a run that failed shall be why, and not what it left.
            "FROSTLINE_EMULATOR_LEAKS": "0",
            **os.environ,
            "FROSTLINE_CUDA_DRIVER": self._driver.library,
        }
        if plain is not None:
            limit = device_limit(plain["peak_device_bytes"])
            settings["FROSTLINE_EMULATOR_MEMORY"] = f"{limit // 1024}KiB"
        return settings

    def _result(self, mode: str, report: dict, environment: dict[str, str]) -> dict:
        """The same keys as train.py writes, and those of a device."""
        plan, fixed = report["plan"], report["fixed_device_bytes"]
        self._emulated = report["label"] == "emulated"
        operations = report.get("operations")
        tiers = report.get("tiers", {})
        return {
            "kind": "device",
            "mode": mode,
            "losses": report["losses"],
            "weights_hash": report["weights_hash"],
            "parameters": plan["parameters"],
            "marks": [
                [start * NS, start * NS + seconds]
                for start, seconds in zip(report["step_start_ns"], report["step_seconds"])
            ],
            "resident_before_bytes": None,
            "peak_device_bytes": report["peak_device_bytes"],
            "fixed_device_bytes": fixed,
            "kept_bytes": report["peak_device_bytes"] - fixed,
            "resident": None,
            "activations": {"bytes": plan["activations_bytes"]},
            "threads": None,
            "torch": None,
            "frostline": report["version"],
            "device": f"{report['device']} ({report['label']})",
            "links": self._links(environment),
            "operations": operations
            and {kind: in_seconds(columns) for kind, columns in operations.items()},
            "misuses": report.get("misuses", 0),
            "stats": {
                "tiers": {name: tiers[name] for name in TIER_TITLES if name in tiers},
                "stalls": report.get("use_stalls", 0),
                "stall_s": report.get("use_stall_ns", 0) * NS,
                "moves": report.get("moves", 0),
            },
            "timeline": in_seconds(report.get("timeline", {})),
        }

    def _links(self, environment: dict[str, str]) -> str | None:
        """What the links of an emulated device are, for the table."""
        if not self._emulated:
            return None
        rates = [environment[f"FROSTLINE_EMULATOR_{way}_BYTES_PER_S"] for way in ("H2D", "D2H")]
        said = [as_rate(rate) for rate in rates]
        scaled = str(PCIE_4_X16_BYTES_PER_S // LINK_SCALE)
        of_what = f" (PCIe 4 x16 divided by {LINK_SCALE})" if rates == [scaled, scaled] else ""
        return f"emulated links: {said[0]} to the device, {said[1]} from it{of_what}"

    def clean(self) -> None:
        """Removes the pmem file where it does not lie in the working directory."""
        self._pmem.unlink(missing_ok=True)

    def notes(self) -> list[str]:
        found = memory_notes(self._folder)
        if self._emulated:
            found.append(
                "The emulated device of the offloaded runs really has half the memory that the "
                "plain run needed. Its links are slower than PCIe by less than its kernels are "
                "slower than a GPU's."
            )
        return found
