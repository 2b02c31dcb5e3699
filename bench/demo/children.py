"""Runs the training children, one after the other, and turns every way to die into one line."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

TRAIN = Path(__file__).with_name("train.py")
TICK_S = 0.2  # how often the progress bar may move while a child is busy
SILENCE_LIMIT_S = 300.0  # no step takes this long; a child that is silent for so long hangs


class ChildFailed(Exception):
    """A child process died or hung; the text is one line for the user.

    `output` is everything that the child wrote to its standard error.
    """

    def __init__(self, line: str, output: str = ""):
        super().__init__(line)
        self.output = output


def run_child(
    job: dict, folder: Path, environment: dict, on_tick: Callable[[dict | None], None]
) -> dict:
    """Trains as `job` says and returns the result of train.py.

    `on_tick` gets each event of the child, and None a few times a second in between. On any
    exception, Ctrl-C included, the child has ended before the exception leaves this function.
    """
    job_file, errors = folder / "job.json", folder / "stderr.txt"
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    job_file.write_text(json.dumps({**job, "result": str(result)}), encoding="utf-8")
    with open(errors, "wb") as stderr:
        child = subprocess.Popen(
            [sys.executable, str(TRAIN), str(job_file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment,
        )
    try:
        silent = not _follow(child, on_tick)
    finally:
        _end(child)
    output = errors.read_text(encoding="utf-8", errors="replace")
    if silent:
        line = f"the {job['mode']} run made no progress for {SILENCE_LIMIT_S:.0f} s"
        raise ChildFailed(line, output)
    if child.returncode != 0:
        raise ChildFailed(describe_death(job["mode"], child.returncode, output), output)
    return json.loads(result.read_text(encoding="utf-8"))


def _follow(child: subprocess.Popen, on_tick: Callable[[dict | None], None]) -> bool:
    """Hands on events until the child closes its output; False when it stays silent too long."""
    pending = b""
    heard = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while time.monotonic() - heard < SILENCE_LIMIT_S:
            if not selector.select(TICK_S):
                on_tick(None)
                continue
            piece = os.read(child.stdout.fileno(), 65536)
            if not piece:
                child.wait()
                return True
            heard = time.monotonic()
            *lines, pending = (pending + piece).split(b"\n")
            for line in lines:
                if line.startswith(b'{"event"'):  # libraries may print lines of their own
                    on_tick(json.loads(line))
    return False


def _end(child: subprocess.Popen) -> None:
    """Ends the child if it still runs, first politely, so that it can remove its own files."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    child.stdout.close()


def describe_death(mode: str, returncode: int, output: str) -> str:
    """One line that says how a child ended and, where that is known, what to do about it."""
    if returncode == -signal.SIGKILL:
        return (
            f"the {mode} run was killed (signal 9), most likely because memory ran out; "
            "try --quick, or fewer --layers"
        )
    if returncode < 0:
        try:
            name = signal.Signals(-returncode).name
        except ValueError:
            name = f"signal {-returncode}"
        return f"the {mode} run crashed ({name})"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    reason = lines[-1] if lines else f"exit status {returncode}, no message"
    return f"the {mode} run failed: {reason}"
