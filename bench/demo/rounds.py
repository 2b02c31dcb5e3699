"""Plain and offloaded runs take turns, so that a slow minute of the machine hits both."""

from __future__ import annotations

import sys
import time
from typing import Callable, Protocol

from progress import Progress
from settings import LONG_ROUND_S, Plan


class Trainer(Protocol):
    """Trains once in a child process. `plain` is the result of the first plain run, None before."""

    def run(
        self, mode: str, plain: dict | None, on_tick: Callable[[dict | None], None]
    ) -> dict: ...

    def clean(self) -> None: ...

    def notes(self) -> list[str]: ...


class Rounds:
    """All child processes of one demo, and what they measured, by mode."""

    def __init__(self, plan: Plan, trainer: Trainer, may_stop_early: bool):
        self.runs: dict[str, list[dict]] = {"plain": [], "offloaded": []}
        self._plan = plan
        self._trainer = trainer
        self._may_stop_early = may_stop_early
        self._progress = Progress(2 * plan.rounds, plan.steps, sys.stderr)

    def run_all(self) -> None:
        try:
            for turn in range(1, self._plan.rounds + 1):
                started = time.monotonic()
                for mode, runs in self.runs.items():
                    self._progress.child(f"{mode}, round {turn} of {self._plan.rounds}")
                    plain = next(iter(self.runs["plain"]), None)
                    runs.append(self._trainer.run(mode, plain, self._progress.tick))
                if self._may_stop_early and time.monotonic() - started > LONG_ROUND_S:
                    break
        finally:
            self._progress.finish()
            self._trainer.clean()

    def notes(self) -> list[str]:
        found = self._trainer.notes()
        rounds = len(self.runs["offloaded"])
        if rounds < self._plan.rounds:
            found.append(f"Rounds run: {rounds} of {self._plan.rounds}, because they took long.")
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
            "operations": offloaded["operations"],
        }
