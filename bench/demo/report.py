"""Writes the report: a table for the terminal, summary.json and index.html."""

from __future__ import annotations

import json
import os
from pathlib import Path

from compare import describe_saving
from kinds import device_label, kind_of, peaks_of
from overlap import describe_overlap
from page import render_page
from settings import TIER_TITLES, as_size, as_time
from summary import machine_lines


def tier_label(name: str, tier: dict) -> str:
    """The label as it is printed: what is emulated, and by what."""
    if tier["label"] == "real":
        return "real"
    return "emulated: a file without DAX" if name == "pmem" else tier["label"]


def aligned(rows: list[list[str]], right: set[int]) -> list[str]:
    """Rows as lines with columns of equal width; the columns in `right` are right-aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ]
        lines.append(("  " + "   ".join(cells)).rstrip())
    return lines


def run_rows(summary: dict) -> list[list[str]]:
    """Rows of (what, plain, offloaded, difference). Figures of an emulated device say so."""
    emulated = ", emulated" if device_label(summary) == "emulated" else ""
    rows = [["", "plain", "offloaded", ""]]
    same = summary["losses_hex"]
    losses = zip(summary["losses"]["plain"], summary["losses"]["offloaded"])
    for step, (plain, offloaded) in enumerate(losses):
        equal = same["plain"][step] == same["offloaded"][step]
        verdict = "same bits" if equal else "DIFFERENT"
        rows.append([f"loss, step {step + 1}", f"{plain:.9f}", f"{offloaded:.9f}", verdict])
    hashes = summary["weights_hash"]
    verdict = "same bits" if summary["weights_identical"] else "DIFFERENT"
    kind = kind_of(summary)
    name = f"final weights, {kind.hash_name}"
    rows.append([name, hashes["plain"][:11], hashes["offloaded"][:11], verdict])
    peaks = peaks_of(summary)
    rows.append([f"peak {kind.memory}{emulated}", *map(as_size, peaks), describe_saving(*peaks)])
    times = summary["step_plain_s"], summary["step_offloaded_s"]
    ratio = f"{summary['step_ratio']:.2f} times"
    rows.append([f"step time, median{emulated}", *map(as_time, times), ratio])
    spread = summary["step_spread_s"]
    ranges = [f"{spread[m][0]:.2f}..{spread[m][1]:.2f} s" for m in ("plain", "offloaded")]
    timed = sum(len(run) for run in summary["step_times_s"]["plain"])
    rows.append(["  lowest..highest", *ranges, f"{timed} steps of each"])
    if summary["overlap"]:
        rows.append([f"copies beside kernels{emulated}", "", *describe_overlap(summary["overlap"])])
    return rows


def tier_rows(summary: dict) -> list[list[str]]:
    """Rows of (tier, budget, peak, moved in and out for each step, label)."""
    rows = [["tier", "budget", "peak", "in / step", "out / step", ""]]
    for name, tier in summary["tiers"].items():
        moved = [
            as_size(tier[key] // max(summary["offloaded_steps"], 1))
            for key in ("moved_in_bytes", "moved_out_bytes")
        ]
        sizes = [as_size(tier["budget_bytes"]), as_size(tier["peak_bytes"])]
        rows.append([TIER_TITLES[name], *sizes, *moved, tier_label(name, tier)])
    return rows


def render_table(summary: dict) -> str:
    """The whole table as text, at most 100 columns wide."""
    shape = summary["plan"]["shape"]
    head = (
        f"GPT-2-shaped model: {shape['layers']} layers, width {shape['width']}, batch of "
        f"{shape['batch']} x {shape['context']} bytes, {summary['parameters'] / 1e6:.1f} million "
        "weights"
    )
    lines = [head, *machine_lines(summary), "", *aligned(run_rows(summary), {1, 2}), ""]
    lines += aligned(tier_rows(summary), {1, 2, 3, 4})
    failed = [check for check in summary["checks"] if not check["passed"]]
    lines.append("")
    lines += [f"FAILED: {check['detail']}" for check in failed]
    if not failed:
        lines.append("Losses and weights are bit-identical; every tier stayed within its budget.")
    return "\n".join(lines)


def clear_report(out: Path) -> None:
    """Makes the folder, and removes what an earlier run left: a report never outlives a failure."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("index.html", "summary.json", "error.txt"):
        (out / name).unlink(missing_ok=True)


def write_report(out: Path, summary: dict, series: dict) -> None:
    """Writes both files; each appears whole or not at all.

    `series` holds what only the page shows: {"timeline", "marks", "resident"}, see page.py.
    """
    out.mkdir(parents=True, exist_ok=True)
    _replace(out / "summary.json", json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    _replace(out / "index.html", render_page(summary, series))


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".part")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)
