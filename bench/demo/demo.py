"""Frostline's demo: trains the same model twice, plain and offloaded, and compares everything.

Both modes run in child processes of their own, taking turns. The losses and the final weights
must be the same bit for bit, otherwise the exit status is 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from children import ChildFailed, run_child
from data import collect_text
from progress import Progress
from report import clear_report, render_table, write_report
from settings import (
    FULL,
    LONG_ROUND_S,
    MIB,
    MIN_OFFLOAD_BYTES,
    QUICK,
    Plan,
    default_threads,
    tier_budgets,
)
from summary import summarise
from workspace import (
    MEMORY_FILE_SYSTEMS,
    WorkspaceError,
    check_space,
    file_system_type,
    workspace,
)

ROOT = Path(__file__).resolve().parents[2]
SEED = 20
SPARE_BYTES = 64 * MIB  # a demo does not fill a file system to the last block
SHAPE_OPTIONS = ("layers", "width", "heads", "context", "batch")


class UsageError(Exception):
    """The demo cannot start as it was called; the text is one line for the user."""


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo.py", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--quick", action="store_true", help="a smaller model, for a first look and for tests")
    add("--steps", type=int, metavar="N", help="steps of each run; the first one warms up")
    add("--rounds", type=int, metavar="N", help="how often plain and offloaded take turns")
    for option in SHAPE_OPTIONS:
        add(f"--{option}", type=int, metavar="N", help=f"{option} of the model or its batches")
    add("--threads", type=int, metavar="N", help="threads of each run")
    add("--text", type=Path, metavar="FILE", help="train on this file [the project's texts]")
    add("--out", type=Path, default=Path("report"), metavar="DIR", help="report goes here [report]")
    add("--workdir", type=Path, metavar="DIR", help="tiers lie here [$TMPDIR, or this directory]")
    add("--pmem-dir", type=Path, metavar="DIR", help="pmem file lies here, for real DAX [workdir]")
    return parser.parse_args(arguments)


def make_plan(options: argparse.Namespace) -> Plan:
    """The preset with the changes that the command line asks for."""
    preset = QUICK if options.quick else FULL
    changes = {name: getattr(options, name) for name in SHAPE_OPTIONS}
    shape = replace(preset.shape, **{k: v for k, v in changes.items() if v is not None})
    steps = preset.steps if options.steps is None else options.steps
    rounds = preset.rounds if options.rounds is None else options.rounds
    try:
        shape.validate()
    except ValueError as error:
        raise UsageError(str(error)) from None
    if steps < 2:
        raise UsageError(f"--steps must be at least 2, not {steps}: the first one is not timed")
    if rounds < 1:
        raise UsageError(f"--rounds must be at least 1, not {rounds}")
    if options.threads is not None and options.threads < 1:
        raise UsageError(f"--threads must be at least 1, not {options.threads}")
    return Plan(shape, steps, rounds)


def read_text(options: argparse.Namespace, plan: Plan) -> bytes:
    """The bytes to train on; both modes get the same ones, read once."""
    try:
        text = options.text.read_bytes() if options.text else collect_text(ROOT)
    except OSError as error:
        raise UsageError(f"cannot read {options.text}: {error.strerror}") from None
    if len(text) <= plan.shape.context + 1:
        raise UsageError(
            f"the text has {len(text)} bytes, too few for a context of {plan.shape.context}"
        )
    return text


def check_packages() -> None:
    for package, advice in (
        ("torch", "install PyTorch for this Python"),
        ("frostline", "build the project and put build/python on PYTHONPATH"),
    ):
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"the Python package {package} is missing: {advice}")


class DemoRun:
    """The child processes of one demo run, and what they measured."""

    def __init__(self, plan: Plan, options: argparse.Namespace, folder: Path, text: bytes):
        self.plan = plan
        self.folder = folder
        self.may_stop_early = options.rounds is None
        self.pmem_folder = options.pmem_dir or folder
        self.runs: dict[str, list[dict]] = {"plain": [], "offloaded": []}
        self.progress = Progress(2 * plan.rounds, plan.steps, sys.stderr)
        self.threads = options.threads or default_threads()
        (folder / "text").write_bytes(text)
        (folder / "swap").mkdir()

    def run_all(self) -> None:
        """Plain and offloaded take turns, so that a slow minute of the machine hits both."""
        try:
            for turn in range(1, self.plan.rounds + 1):
                started = time.monotonic()
                self._run("plain", turn)
                self._run("offloaded", turn)
                if self.may_stop_early and time.monotonic() - started > LONG_ROUND_S:
                    break
        finally:
            self.progress.finish()

    def _run(self, mode: str, turn: int) -> None:
        self.progress.child(f"{mode}, round {turn} of {self.plan.rounds}")
        job = {
            "mode": mode,
            "shape": asdict(self.plan.shape),
            "steps": self.plan.steps,
            "seed": SEED,
            "threads": self.threads,
            "text": str(self.folder / "text"),
            "count_saved": mode == "plain" and turn == 1,
            "tiers": self._tiers() if mode == "offloaded" else None,
        }
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        result = run_child(job, self.folder, environment, self.progress.tick)
        self.runs[mode].append(result)

    def _tiers(self) -> dict:
        """Arguments of frostline.offload, from what the first plain run saved."""
        budgets = tier_budgets(self.runs["plain"][0]["activations"]["bytes"])
        sizes = {name: f"{size // MIB}MiB" for name, size in budgets.items()}
        if self.pmem_folder == self.folder:
            check_space(self.folder.parent, budgets["pmem"] + budgets["swap"] + SPARE_BYTES)
        else:
            check_space(self.folder.parent, budgets["swap"] + SPARE_BYTES)
            check_space(self.pmem_folder, budgets["pmem"])
        return {
            "dram": sizes["dram"],
            "pmem": str(self.pmem_folder / f"{self.folder.name}.pmem"),
            "swap": str(self.folder / "swap"),
            "min_bytes": f"{MIN_OFFLOAD_BYTES // MIB}MiB",
            "pmem_bytes": sizes["pmem"],
            "swap_bytes": sizes["swap"],
        }

    def clean(self) -> None:
        """Removes the pmem file where it does not lie in the working directory."""
        (self.pmem_folder / f"{self.folder.name}.pmem").unlink(missing_ok=True)

    def notes(self) -> list[str]:
        found = []
        if file_system_type(self.folder) in MEMORY_FILE_SYSTEMS:
            found.append("The working directory is held in memory: the swap tier saves none.")
        rounds = len(self.runs["offloaded"])
        if rounds < self.plan.rounds:
            found.append(f"Rounds run: {rounds} of {self.plan.rounds}, because they took long.")
        return found

    def series(self) -> dict:
        """What the charts show: the last run of each mode."""
        plain, offloaded = self.runs["plain"][-1], self.runs["offloaded"][-1]
        return {
            "timeline": offloaded["timeline"],
            "plain_marks": plain["marks"],
            "offloaded_marks": offloaded["marks"],
            "plain_resident": plain["resident"],
            "offloaded_resident": offloaded["resident"],
        }


def run(options: argparse.Namespace) -> int:
    """Runs the children, prints the table and writes the report; the exit status."""
    check_packages()
    plan = make_plan(options)
    text = read_text(options, plan)
    clear_report(options.out)
    print("Training the same model plain and offloaded, one after the other.", flush=True)
    with workspace(options.workdir) as folder:
        demo = DemoRun(plan, options, folder, text)
        try:
            demo.run_all()
        finally:
            demo.clean()
        runs = demo.runs
        summary = summarise(plan, runs["plain"], runs["offloaded"], demo.notes())
        series = demo.series()
    write_report(options.out, summary, series)
    print(f"\n{render_table(summary)}\n\nReport: {options.out / 'index.html'}")
    return 0 if summary["passed"] else 1


def fail(line: str, status: int = 1) -> int:
    print(f"demo: {line}", file=sys.stderr)
    return status


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    try:
        return run(options)
    except (UsageError, WorkspaceError) as error:
        return fail(str(error))
    except ChildFailed as error:
        status = fail(str(error))
        if error.output:
            trace = options.out / "error.txt"
            trace.write_text(error.output, encoding="utf-8")
            print(f"demo: what the process wrote is in {trace}", file=sys.stderr)
        return status
    except OSError as error:
        return fail(f"{error.filename or ''}: {error.strerror}")
    except KeyboardInterrupt:
        return fail("interrupted", 130)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
