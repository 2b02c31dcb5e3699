"""The two kinds of demo, and the words in which their reports differ. The figures do not: a run of
either kind is a dict with the same keys.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """What is called what. `peak` begins the keys of peak memory: a run has `<peak>_bytes`."""

    peak: str
    memory: str
    hash_name: str
    moves: str  # what goes through the tiers
    kept: str  # when a plain run keeps all of that
    hills: str  # what the timeline shows
    peak_note: str


PROCESS = Kind(
    peak="peak_rss",
    memory="resident memory",
    hash_name="sha256",
    moves="activations",
    kept="saved in each step;",
    hills="Each hill is a training step: the forward pass saves activations, the backward pass "
    "uses them up in reverse order.",
    peak_note="Peak memory is VmHWM, the most that was ever resident in the process: PyTorch "
    "itself, weights, optimiser, activations and the pages of the mapped pmem file.",
)
DEVICE = Kind(
    peak="peak_device",
    memory="device memory",
    hash_name="XXH3",
    moves="activations and states",
    kept="kept by the plain run;",
    hills="States are gradients and the optimizer's moments: they are there between the steps, "
    "too. On them the forward pass piles up activations, which the backward pass uses up in "
    "reverse order.",
    peak_note="Peak memory is what lay in device memory: weights, workspace, and what the tier on "
    "the device or the plain run held, activations, gradients and the optimizer's moments.",
)
KINDS = {"process": PROCESS, "device": DEVICE}


def kind_of(summary: dict) -> Kind:
    return KINDS[summary["kind"]]


def device_label(summary: dict) -> str | None:
    """Whether the device is real or emulated; None where there is none."""
    return summary["tiers"].get("device", {}).get("label")


def peaks_of(summary: dict) -> tuple[int, int]:
    """Peak memory in bytes, plain and offloaded."""
    peak = kind_of(summary).peak
    return summary[f"{peak}_plain_bytes"], summary[f"{peak}_offloaded_bytes"]
