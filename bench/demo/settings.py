"""What one demo run trains and with which budgets: shapes and sizes."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass

MIB = 1 << 20
GIB = 1 << 30

# All tiers that a run may have, fastest first.
TIER_TITLES = {"device": "device", "dram": "DRAM", "pmem": "pmem", "swap": "swap"}

# Smaller tensors (layer-norm statistics, log-sums of the softmax) are left where they are: they
# are a thousandth of the bytes and most of the tensors.
MIN_OFFLOAD_BYTES = MIB

# A round that took longer than this is not repeated unless that was asked for: old versions of
# PyTorch need three times as long for a step, and nobody waits minutes for a first look.
LONG_ROUND_S = 90.0

# More threads than this make the small demo model bound by the start of parallel regions.
MAX_DEFAULT_THREADS = 8


class UsageError(Exception):
    """The demo cannot start, or not go on, as it was called; the text is one line for the user."""


@dataclass(frozen=True)
class Shape:
    """Size of the model and of one batch. Saved activations grow as layers * batch * context *
    width; the arithmetic of a step grows with one more factor of width."""

    layers: int
    width: int
    heads: int
    context: int
    batch: int

    def validate(self) -> None:
        """Raises ValueError with a line for the user when the numbers do not fit together."""
        for name, value in asdict(self).items():
            if value < 1:
                raise ValueError(f"--{name} must be at least 1, not {value}")
        if self.width % self.heads:
            raise ValueError(f"--width {self.width} is no multiple of --heads {self.heads}")


@dataclass(frozen=True)
class Plan:
    """How often what is run: `rounds` times a plain and then an offloaded child process, each of
    `steps` training steps of which the first one warms up and is not timed."""

    shape: Shape
    steps: int
    rounds: int


FULL = Plan(Shape(layers=6, width=384, heads=6, context=256, batch=40), steps=4, rounds=2)
QUICK = Plan(Shape(layers=6, width=256, heads=4, context=256, batch=32), steps=4, rounds=1)


def default_threads() -> int:
    """CPUs that this process may use, within reason."""
    return max(1, min(len(os.sched_getaffinity(0)), MAX_DEFAULT_THREADS))


def whole_mib(size_bytes: int, least_mib: int = 4) -> int:
    """Rounds down to whole MiB, but never below `least_mib`; in bytes."""
    return max(size_bytes // MIB, least_mib) * MIB


def tier_budgets(activation_bytes: int) -> dict[str, int]:
    """Budgets in bytes by tier. A quarter of the activations may stay in DRAM and a third fits
    into pmem, so the rest has to go to swap, which could hold all of them."""
    return {
        "dram": whole_mib(activation_bytes // 4),
        "pmem": whole_mib(activation_bytes // 3),
        "swap": whole_mib(activation_bytes) + 16 * MIB,
    }


def as_size(size_bytes: int) -> str:
    """Bytes as a person reads them: 371 MiB, 1.45 GiB."""
    if size_bytes >= GIB:
        return f"{size_bytes / GIB:.2f} GiB"
    if size_bytes >= 10 * MIB:
        return f"{size_bytes / MIB:.0f} MiB"
    if size_bytes >= MIB:
        return f"{size_bytes / MIB:.1f} MiB"
    return f"{size_bytes} B" if size_bytes < 1024 else f"{size_bytes / 1024:.0f} KiB"


def as_time(seconds: float) -> str:
    """Seconds as a person reads them: 1.25 s, 12.5 ms."""
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1e3:.1f} ms"
