"""A progress bar: one line that is redrawn on a terminal, a few plain lines anywhere else."""

from __future__ import annotations

import time
from typing import TextIO

BAR_CELLS = 28
CLEAR_LINE = "\r\x1b[K"

# A child needs about this part of a step to start: importing torch, building the model.
STARTUP_STEPS = 0.6


class Progress:
    """Counts steps over all children. Between two steps the bar advances with the clock, by the
    time that the last step took, but never past the step that is still running."""

    def __init__(self, children: int, steps: int, stream: TextIO):
        self._steps = steps
        self._total = children * (steps + STARTUP_STEPS)
        self._stream = stream
        self._terminal = stream.isatty()
        self._started = self._last = time.monotonic()
        self._children_done = 0
        self._done = 0.0
        self._step_s = 4.0  # until the first step has been seen
        self._name = ""
        self._doing = ""

    def child(self, name: str) -> None:
        """A child starts; `name` says which, for example "plain, round 1 of 2"."""
        self._name = name
        self._doing = "starting"
        self._done = self._children_done * (self._steps + STARTUP_STEPS)
        self._children_done += 1
        self._last = time.monotonic()
        if not self._terminal:
            print(f"  {name}: {self._steps} steps", file=self._stream, flush=True)
        self._draw()

    def tick(self, event: dict | None) -> None:
        """An event of the child, or None when only time has passed."""
        now = time.monotonic()
        if event and event["event"] == "ready":
            self._advance(STARTUP_STEPS, 1, now)
        elif event and event["event"] == "step":
            self._step_s = max(now - self._last, 1e-3)
            self._advance(1.0, event["index"] + 2, now)
        self._draw()

    def finish(self) -> None:
        """Takes the bar away; what is printed next starts on a clean line."""
        if self._terminal:
            self._stream.write(CLEAR_LINE)
            self._stream.flush()

    def fraction(self) -> float:
        """How much is done, 0 to 1."""
        within = min((time.monotonic() - self._last) / self._step_s, 0.97)
        whole = self._children_done * (self._steps + STARTUP_STEPS)
        return min(self._done + within, whole, self._total) / self._total

    def _advance(self, steps: float, next_step: int, now: float) -> None:
        self._done += steps
        self._last = now
        finished = next_step > self._steps
        self._doing = "finishing" if finished else f"step {next_step} of {self._steps}"

    def _draw(self) -> None:
        if not self._terminal:
            return
        fraction = self.fraction()
        filled = int(fraction * BAR_CELLS)
        bar = "#" * filled + "." * (BAR_CELLS - filled)
        elapsed = int(time.monotonic() - self._started)
        clock = f"{elapsed // 60}:{elapsed % 60:02d}"
        line = f"[{bar}] {fraction:4.0%}  {clock}  {self._name}: {self._doing}"
        self._stream.write(CLEAR_LINE + line[:79])
        self._stream.flush()
