"""Runs the training children, one after the other, and turns every way to die into one line."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

TICK_S = 0.2  # how often the progress bar may move while a child is busy
SILENCE_LIMIT_S = 300.0  # no step takes this long; a child that is silent for so long hangs


class ChildFailed(Exception):
    """A child process died or hung; the text is one line for the user.

    `output` is everything that the child wrote to its standard error.
    """

    def __init__(self, line: str, output: str = ""):
        super().__init__(line)
        self.output = output


@dataclass(frozen=True)
class Child:
    """A process to run: `mode` is what errors call it, and `read_line` makes an event of a line of
    its standard output, or None of one that is none."""

    mode: str
    command: list[str]
    environment: dict[str, str]
    read_line: Callable[[bytes], dict | None]


def run_child(child: Child, folder: Path, on_tick: Callable[[dict | None], None]) -> None:
    """Runs it to its end; `folder` is for its standard error.

    `on_tick` gets each event of the child, and None a few times a second in between. On any
    exception, Ctrl-C included, the child has ended before the exception leaves this function.
    """
    errors = folder / "stderr.txt"
    with open(errors, "wb") as stderr:
        process = subprocess.Popen(
            child.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=child.environment,
        )
    try:
        silent = not _follow(process, child.read_line, on_tick)
    finally:
        _end(process)
    output = errors.read_text(encoding="utf-8", errors="replace")
    if silent:
        line = f"the {child.mode} run made no progress for {SILENCE_LIMIT_S:.0f} s"
        raise ChildFailed(line, output)
    if process.returncode != 0:
        raise ChildFailed(describe_death(child.mode, process.returncode, output), output)


def _follow(
    process: subprocess.Popen,
    read_line: Callable[[bytes], dict | None],
    on_tick: Callable[[dict | None], None],
) -> bool:
    """Hands on events until the child closes its output; False when it stays silent too long."""
    pending = b""
    heard = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() - heard < SILENCE_LIMIT_S:
            if not selector.select(TICK_S):
                on_tick(None)
                continue
            piece = os.read(process.stdout.fileno(), 65536)
            if not piece:
                process.wait()
                return True
            heard = time.monotonic()
            *lines, pending = (pending + piece).split(b"\n")
            for event in filter(None, map(read_line, lines)):
                on_tick(event)
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
    if "cuInit failed" in reason:
        # The emulator, which has refused its settings, has said which and why.
        said = [line for line in lines if line.startswith("frostline emulator: ")]
        reason = said[-1] if said else reason
    return f"the {mode} run failed: {reason}"
