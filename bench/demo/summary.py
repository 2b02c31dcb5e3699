"""Turns what the children measured into report/summary.json, the one source of all figures."""

from __future__ import annotations

import platform
import statistics
from dataclasses import asdict

from compare import check_all
from kinds import KINDS, Kind
from overlap import overlap_of
from settings import TIER_TITLES, Plan, as_size

EMULATED_NOTE = {
    "device": "The GPU is emulated: kernels run on the host's processor, device memory is host "
    "memory. Sizes and results are real; times say nothing of a GPU.",
    "pmem": "pmem is emulated: a file mapped through libpmem on a file system without DAX. What "
    "it holds is real, its speed and its durability are those of the disk below it.",
}
OTHER_EMULATED_NOTE = "the {name} tier is emulated."


def step_seconds(runs: list[dict]) -> list[list[float]]:
    """Per run, the seconds of each timed step; the first one of a run warms up and is left out."""
    return [[mark[-1] - mark[0] for mark in run["marks"][1:]] for run in runs]


def phases(runs_by_mode: dict[str, list[dict]]) -> dict:
    """Median seconds of the phases of a step, by phase and mode. Of a device that works on its own
    the process knows only when a step began and ended: then there are none."""
    if any(len(run["marks"][0]) != 4 for runs in runs_by_mode.values() for run in runs):
        return {}

    def median(runs: list[dict], start: int, end: int) -> float:
        return statistics.median(m[end] - m[start] for run in runs for m in run["marks"][1:])

    return {
        "forward_s": {mode: median(runs, 0, 1) for mode, runs in runs_by_mode.items()},
        "backward_s": {mode: median(runs, 1, 2) for mode, runs in runs_by_mode.items()},
    }


def merge_tiers(runs: list[dict]) -> dict[str, dict]:
    """Per tier, fastest first: the highest peak of all offloaded runs, and the bytes that they
    moved together."""
    merged = {}
    for name in (tier for tier in TIER_TITLES if tier in runs[0]["stats"]["tiers"]):
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


def notes(tiers: dict[str, dict], kind: Kind, extra: list[str]) -> list[str]:
    """What a reader must know before quoting a figure."""
    found = []
    for name, tier in tiers.items():
        if tier["label"] != "real":
            found.append(EMULATED_NOTE.get(name, OTHER_EMULATED_NOTE.format(name=name)))
    found.append(
        "Plain and offloaded runs are separate processes that take turns, with the same number "
        "of threads, the same text and the same seed."
    )
    found.append(
        f"{kind.peak_note} Of several runs the lowest plain and the highest offloaded peak count."
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
    kind = KINDS[plain[0]["kind"]]
    tiers = merge_tiers(offloaded)
    checks = check_all(plain, offloaded, tiers, kind)
    both = {"plain": plain, "offloaded": offloaded}
    steps = {mode: step_seconds(runs) for mode, runs in both.items()}
    flat = {mode: [s for run in runs for s in run] for mode, runs in steps.items()}
    medians = {mode: statistics.median(values) for mode, values in flat.items()}
    peak_plain = min(run[f"{kind.peak}_bytes"] for run in plain)
    peak_offloaded = max(run[f"{kind.peak}_bytes"] for run in offloaded)
    return {
        "kind": plain[0]["kind"],
        "losses_identical": checks[0].passed,
        "weights_identical": checks[1].passed,
        "passed": all(check.passed for check in checks),
        "checks": [asdict(check) for check in checks],
        f"{kind.peak}_plain_bytes": peak_plain,
        f"{kind.peak}_offloaded_bytes": peak_offloaded,
        f"{kind.peak}_saving": 1 - peak_offloaded / peak_plain,
        "step_plain_s": medians["plain"],
        "step_offloaded_s": medians["offloaded"],
        "step_ratio": medians["offloaded"] / medians["plain"],
        "step_spread_s": {mode: [min(v), max(v)] for mode, v in flat.items()},
        "step_times_s": steps,
        **phases(both),
        "activation_bytes": plain[0]["activations"]["bytes"],
        "activations": plain[0]["activations"],
        "kept_bytes": plain[0].get("kept_bytes", plain[0]["activations"]["bytes"]),
        "limit_bytes": offloaded[0].get("limit_bytes"),
        "device": plain[0].get("device"),
        "links": plain[0].get("links"),
        "overlap": overlap_of(offloaded[-1]),
        "tiers": tiers,
        "offload": merge_counters(offloaded),
        "offloaded_steps": sum(len(run["marks"]) for run in offloaded),
        "losses": {"plain": plain[0]["losses"], "offloaded": offloaded[0]["losses"]},
        "losses_hex": {"plain": plain[0]["losses_hex"], "offloaded": offloaded[0]["losses_hex"]},
        "weights_hash": {
            "plain": plain[0]["weights_hash"],
            "offloaded": offloaded[0]["weights_hash"],
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
        "notes": notes(tiers, kind, extra_notes),
    }


def machine_lines(summary: dict) -> list[str]:
    """What trained, in a line or two for the reader."""
    versions = summary["versions"]
    parts = [f"{name} {versions[name]}" for name in ("torch", "frostline") if versions[name]]
    if summary["device"]:
        parts.insert(0, summary["device"])
    if summary["threads"]:
        parts.append(f"{summary['threads']} threads")
    saved = f"a step saves {as_size(summary['activation_bytes'])} of activations"
    lines = [f"{', '.join(parts)}; {saved}"]
    if summary["links"]:
        lines.append(summary["links"])
    return lines
