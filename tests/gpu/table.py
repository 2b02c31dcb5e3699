"""The one table of check.sh, from what its parts left in a folder. What is missing is left out.

Usage: table.py FOLDER --gpu NAME --seconds N. Needs the standard library only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

MIB = 1 << 20


def parts_of(folder):
    """(name, outcome, seconds, note) of each part that was begun."""
    path = folder / "parts.tsv"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [tuple((line.split("\t") + ["", "", ""])[:4]) for line in lines]


def json_of(folder, name):
    path = folder / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def device_rows(results):
    """(what, value, unit, spread, beside, ratio) of each row of the bench suite."""
    for row in results or []:
        beside, ratio = "", ""
        if row["baseline"]:
            beside = f"{row['baseline_value']:.2f} {row['baseline']}"
            ratio = f"{row['ratio']:.2f}"
        yield (f"{row['name']} ({row['label']})", f"{row['value']:.2f}", row["unit"],
               f"{row['spread']:.0%}", beside, ratio)


def trainer_rows(results):
    if results is None:
        return
    plain, moved = (statistics.median(results[way]["step_seconds"][1:] or [0])
                    for way in ("plain", "offloaded"))
    label = results["plain"]["label"]
    seconds = results["offloaded"]["step_seconds"][1:] or [0]
    spread = (max(seconds) - min(seconds)) / moved if moved else 0
    yield (f"trainer step, offloaded ({label})", f"{moved * 1e3:.1f}", "ms", f"{spread:.0%}",
           f"{plain * 1e3:.1f} plain", f"{moved / plain:.2f}" if plain else "")
    yield (f"trainer peak GPU memory ({label})",
           f"{results['offloaded']['peak_device_bytes'] / MIB:.0f}", "MiB", "",
           f"{results['plain']['peak_device_bytes'] / MIB:.0f} plain", "")
    yield (f"trainer moved from the GPU ({label})", f"{results['moved_bytes'] / MIB:.0f}", "MiB",
           "", "", "")
    yield ("trainer losses and weights", "identical" if results["identical"] else "DIFFERENT", "",
           "", "plain, every bit", "")


def torch_rows(results):
    if results is None:
        return
    plain = results["ways"]["plain"]
    where = results["device"]
    for name, way in results["ways"].items():
        against = "" if name == "plain" else f"{plain['step_s'] * 1e3:.1f} plain"
        ratio = "" if name == "plain" else f"{way['step_s'] / plain['step_s']:.2f}"
        yield (f"PyTorch step, {name} ({where})", f"{way['step_s'] * 1e3:.1f}", "ms",
               f"{way['spread']:.0%}", against, ratio)
    for name, way in results["ways"].items():
        if way["peak_bytes"]:
            yield (f"PyTorch peak beyond the model, {name}", f"{way['peak_bytes'] / MIB:.0f}",
                   "MiB", "", "", "")
    if results["dram_fallback"]:
        yield ("DRAM of frostline.offload", results["dram_fallback"], "", "", "", "")
    for name in ("save_on_cpu", "frostline"):
        same = "identical" if results["identical"][name] else "DIFFERENT"
        yield (f"PyTorch losses, {name}", same, "", "", "plain, every bit", "")


def allocator_rows(results):
    if results is None:
        return
    default, ours = results["ways"]["default"], results["ways"]["frostline"]
    yield (f"PyTorch step, Frostline's allocator ({ours['device']})", f"{ours['step_s'] * 1e3:.1f}",
           "ms", f"{ours['spread']:.0%}", f"{default['step_s'] * 1e3:.1f} its own",
           f"{ours['step_s'] / default['step_s']:.2f}")
    for key, what in (("allocated_bytes", "allocated"), ("reserved_bytes", "reserved")):
        if key in ours:
            yield (f"PyTorch peak {what}, Frostline's allocator", f"{ours[key] / MIB:.0f}", "MiB",
                   "", f"{default[key] / MIB:.0f} its own", f"{ours[key] / default[key]:.3f}")
    yield ("PyTorch losses, Frostline's allocator",
           "identical" if results["identical"] else "DIFFERENT", "", "", "its own, every bit", "")
    for name, outcome in ours["checks"].items():
        yield (f"Frostline's allocator, {name}", outcome, "", "", "", "")


def table(folder):
    """All rows, the outcomes of the parts first."""
    rows = [(f"part {name}", outcome, "", f"{seconds} s", note, "")
            for name, outcome, seconds, note in parts_of(folder)]
    rows += device_rows(json_of(folder, "device.json"))
    rows += trainer_rows(json_of(folder, "trainer.json"))
    rows += torch_rows(json_of(folder, "torch.json"))
    rows += allocator_rows(json_of(folder, "torch_allocator.json"))
    return rows


def print_table(rows):
    heads = ("what", "value", "unit", "spread", "beside", "ratio")
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    for row in [heads, *rows]:
        cells = [cell.rjust(width) if i in (1, 3, 5) else cell.ljust(width)
                 for i, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--seconds", required=True)
    arguments = parser.parse_args()
    print(f"Frostline on {arguments.gpu}, {arguments.seconds} s in all")
    print_table(table(arguments.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
