"""Turns what the children measured into report/summary.json, the one source of all figures."""

from __future__ import annotations

import platform
import statistics
from dataclasses import asdict

from compare import check_all
from settings import TIER_NAMES, Plan

EMULATED_NOTE = {
    "pmem": "pmem is emulated: a file mapped through libpmem on a file system without DAX. What "
    "it holds is real, its speed and its durability are those of the disk below it.",
}
OTHER_EMULATED_NOTE = "the {name} tier is emulated."


def step_seconds(runs: list[dict]) -> list[list[float]]:
    """Per run, the seconds of each timed step; the first one of a run warms up and is left out."""
    return [[mark[3] - mark[0] for mark in run["marks"][1:]] for run in runs]


def phase_median(runs: list[dict], start: int, end: int) -> float:
    """Median seconds between two marks of a step (0 start, 1 forward, 2 backward, 3 end)."""
    return statistics.median(m[end] - m[start] for run in runs for m in run["marks"][1:])


def merge_tiers(runs: list[dict]) -> dict[str, dict]:
    """Per tier: the highest peak of all offloaded runs, and the bytes that they moved together."""
    merged = {}
    for name in TIER_NAMES:
        each = [run["stats"]["tiers"][name] for run in runs]
        merged[name] = {
            "budget_bytes": each[0]["budget_bytes"],
            "peak_bytes": max(tier["peak_bytes"] for tier in each),
            "moved_in_bytes": sum(tier["moved_in_bytes"] for tier in each),
            "moved_out_bytes": sum(tier["moved_out_bytes"] for tier in each),
            "label": each[0]["label"],
        }
    return merged


def merge_counters(runs: list[dict]) -> dict:
    """The offload's own counters, summed over all offloaded runs."""
    names = ("saved", "saved_bytes", "passed_through", "hits", "stalls", "stall_s", "moves")
    return {name: sum(run["stats"].get(name, 0) for run in runs) for name in names}


def notes(tiers: dict[str, dict], extra: list[str]) -> list[str]:
    """What a reader must know before quoting a figure."""
    found = []
    for name in TIER_NAMES:
        if tiers[name]["label"] != "real":
            found.append(EMULATED_NOTE.get(name, OTHER_EMULATED_NOTE.format(name=name)))
    found.append(
        "Plain and offloaded runs are separate processes that take turns, with the same number "
        "of threads, the same seed and the same environment."
    )
    found.append(
        "Peak memory is VmHWM, the most that was ever resident in the process: PyTorch itself, "
        "weights, optimiser, activations and the pages of the mapped pmem file. Of several runs "
        "the lowest plain and the highest offloaded peak count."
    )
    found.append(
        "Step times are medians with the lowest and highest; the first step of each run warms up "
        "and does not count."
    )
    return found + extra


def summarise(
    plan: Plan, plain: list[dict], offloaded: list[dict], extra_notes: list[str]
) -> dict:
    """The content of summary.json. Sizes in bytes, times in seconds, ratios offloaded / plain."""
    tiers = merge_tiers(offloaded)
    checks = check_all(plain, offloaded, tiers)
    both = {"plain": plain, "offloaded": offloaded}
    steps = {mode: step_seconds(runs) for mode, runs in both.items()}
    flat = {mode: [s for run in runs for s in run] for mode, runs in steps.items()}
    medians = {mode: statistics.median(values) for mode, values in flat.items()}
    peak_plain = min(run["peak_rss_bytes"] for run in plain)
    peak_offloaded = max(run["peak_rss_bytes"] for run in offloaded)
    return {
        "losses_identical": checks[0].passed,
        "weights_identical": checks[1].passed,
        "passed": all(check.passed for check in checks),
        "checks": [asdict(check) for check in checks],
        "peak_rss_plain_bytes": peak_plain,
        "peak_rss_offloaded_bytes": peak_offloaded,
        "peak_rss_saving": 1 - peak_offloaded / peak_plain,
        "step_plain_s": medians["plain"],
        "step_offloaded_s": medians["offloaded"],
        "step_ratio": medians["offloaded"] / medians["plain"],
        "step_spread_s": {mode: [min(v), max(v)] for mode, v in flat.items()},
        "step_times_s": steps,
        "forward_s": {mode: phase_median(runs, 0, 1) for mode, runs in both.items()},
        "backward_s": {mode: phase_median(runs, 1, 2) for mode, runs in both.items()},
        "activation_bytes": plain[0]["activations"]["bytes"],
        "activations": plain[0]["activations"],
        "tiers": tiers,
        "offload": merge_counters(offloaded),
        "offloaded_steps": sum(len(run["marks"]) for run in offloaded),
        "losses": {"plain": plain[0]["losses"], "offloaded": offloaded[0]["losses"]},
        "losses_hex": {"plain": plain[0]["losses_hex"], "offloaded": offloaded[0]["losses_hex"]},
        "weights_sha256": {
            "plain": plain[0]["weights_sha256"],
            "offloaded": offloaded[0]["weights_sha256"],
        },
        "plan": {**asdict(plan), "rounds": len(plain)},
        "parameters": plain[0]["parameters"],
        "resident_before_bytes": plain[0]["resident_before_bytes"],
        "threads": plain[0]["threads"],
        "versions": {
            "torch": plain[0]["torch"],
            "frostline": offloaded[0]["frostline"],
            "python": platform.python_version(),
        },
        "notes": notes(tiers, extra_notes),
    }
