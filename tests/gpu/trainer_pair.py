"""Trains the driver API's model twice, plain and with half of its activations' room on the GPU.

Usage: trainer_pair.py PROGRAM FILE SIZES... Writes what both reported to the file, and whether
losses and weights are the same in every bit; exits 1 if they are not, or if nothing was moved.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

GRANULE = 2 << 20  # of GPU memory


def trained(program, folder, name, arguments):
    """The report of a run, and its losses as text."""
    report, losses = folder / f"{name}.json", folder / f"{name}.losses"
    subprocess.run([program, *arguments, "--weights-hash", "--report", report, "--losses", losses],
                   check=True)
    return json.loads(report.read_text(encoding="utf-8")), losses.read_text(encoding="utf-8")


def run_pair(program, sizes):
    """What both runs came to."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        plain, plain_losses = trained(program, folder, "plain", sizes)
        needed = plain["plan"]["activations_bytes"]
        tiers = {
            "device": max(needed // 2 // GRANULE, 4) * GRANULE,
            "dram": 2 * needed + (64 << 20),
            "calibrate": 0,
        }
        chosen = [word for name, value in tiers.items() for word in ("--tier", f"{name}={value}")]
        moved, moved_losses = trained(program, folder, "offloaded",
                                      [*sizes, "--offload", "activations", *chosen])
    identical = (plain_losses == moved_losses and
                 plain["weights_hash"] == moved["weights_hash"])
    for report in (plain, moved):
        report.pop("timeline", None)
    return {"plain": plain, "offloaded": moved, "identical": identical,
            "moved_bytes": moved["tiers"]["device"]["moved_out_bytes"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("results", type=Path)
    parser.add_argument("sizes", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    try:
        pair = run_pair(arguments.program, arguments.sizes)
    except subprocess.CalledProcessError as error:
        print(f"trainer_pair: error: {error}", file=sys.stderr)
        return 1
    arguments.results.write_text(json.dumps(pair, indent=2) + "\n", encoding="utf-8")
    wrong = [text for text, is_so in (("losses or weights differ", not pair["identical"]),
                                      ("nothing was moved", pair["moved_bytes"] == 0)) if is_so]
    for text in wrong:
        print(f"trainer_pair: error: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
