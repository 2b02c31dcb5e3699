"""Frostline's demo: trains the same model twice, plain and offloaded, and compares everything.

Both modes run in child processes of their own, taking turns. The losses and the final weights
must be the same bit for bit, otherwise the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Callable

from children import ChildFailed
from device_settings import DEVICE_FULL, DEVICE_GPU, DEVICE_QUICK
from device_trainer import DeviceTrainer, check_program
from gpu import choose_driver
from process_trainer import ProcessTrainer, check_packages
from report import clear_report, render_table, write_report
from rounds import Rounds, Trainer
from settings import FULL, QUICK, Plan, UsageError
from summary import summarise
from texts import collect_text
from workspace import WorkspaceError, workspace

ROOT = Path(__file__).resolve().parents[2]
SHAPE_OPTIONS = ("layers", "width", "heads", "context", "batch")


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo.py", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--quick", action="store_true", help="a smaller model, for a first look and for tests")
    add(
        "--device",
        action="store_true",
        help="train on a GPU, or an emulated one, with device memory for half of what it takes",
    )
    add("--steps", type=int, metavar="N", help="steps of each run; the first one warms up")
    add("--rounds", type=int, metavar="N", help="how often plain and offloaded take turns")
    for option in SHAPE_OPTIONS:
        add(f"--{option}", type=int, metavar="N", help=f"{option} of the model or its batches")
    add("--threads", type=int, metavar="N", help="threads of each run, not with --device")
    add("--text", type=Path, metavar="FILE", help="train on this file [the project's texts]")
    add("--out", type=Path, default=Path("report"), metavar="DIR", help="report goes here [report]")
    add("--workdir", type=Path, metavar="DIR", help="tiers lie here [$TMPDIR, or this directory]")
    add("--pmem-dir", type=Path, metavar="DIR", help="pmem file lies here, for real DAX [workdir]")
    add(
        "--build",
        type=Path,
        default=ROOT / "build",
        metavar="DIR",
        help="where the project was built, for --device [build]",
    )
    return parser.parse_args(arguments)


def make_plan(options: argparse.Namespace, preset: Plan) -> Plan:
    """The preset with the changes that the command line asks for."""
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
    if options.threads is not None and options.device:
        raise UsageError("--threads does not go with --device: kernels run where the driver says")
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


def prepare(options: argparse.Namespace) -> tuple[Plan, Callable[[Path], Trainer]]:
    """What to train, and what makes a trainer in a folder that has the text."""
    if not options.device:
        check_packages()
        plan = make_plan(options, QUICK if options.quick else FULL)
        return plan, lambda folder: ProcessTrainer(plan, folder, options.pmem_dir, options.threads)
    program = check_program(options.build)
    driver = choose_driver(options.build, os.environ.get("FROSTLINE_CUDA_DRIVER"))
    full = DEVICE_GPU if driver.is_gpu else DEVICE_FULL
    plan = make_plan(options, DEVICE_QUICK if options.quick else full)
    return plan, lambda folder: DeviceTrainer(plan, folder, options.pmem_dir, program, driver)


def run(options: argparse.Namespace) -> int:
    """Runs the children, prints the table and writes the report; the exit status."""
    plan, make_trainer = prepare(options)
    text = read_text(options, plan)
    clear_report(options.out)
    print("Training the same model plain and offloaded, one after the other.", flush=True)
    with workspace(options.workdir, options.pmem_dir) as folder:
        (folder / "text").write_bytes(text)
        rounds = Rounds(plan, make_trainer(folder), may_stop_early=options.rounds is None)
        rounds.run_all()
        runs = rounds.runs
        summary = summarise(plan, runs["plain"], runs["offloaded"], rounds.notes())
    write_report(options.out, summary, rounds.series())
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
