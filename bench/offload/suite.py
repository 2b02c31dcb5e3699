"""The cost of `frostline.offload` to a training step, in one process, alternating with plain steps.

Usage: suite.py [--json FILE]. The model is the demo's, smaller. Rows: a step with a quarter of the
saved bytes in DRAM and the rest in swap; a step with everything in DRAM; saving one tensor of 1 MiB
that never moves.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "demo"))

import frostline  # noqa: E402
from model import ByteLanguageModel  # noqa: E402

REPETITIONS = 5
LAYERS, WIDTH, HEADS, CONTEXT, BATCH = 6, 256, 4, 256, 32
MIB = 1 << 20


class Step:
    """One deterministic training step, with or without an offload."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = ByteLanguageModel(LAYERS, WIDTH, HEADS, CONTEXT)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.tokens = torch.randint(0, 256, (2, BATCH, CONTEXT))

    def seconds(self, context) -> float:
        start = time.perf_counter()
        with context:
            loss = self.model(self.tokens[0], self.tokens[1])
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - start


def save_seconds(context) -> float:
    """Seconds for an operation that saves a tensor of 1 MiB, whose graph is then dropped."""
    count = 64
    x = torch.ones(MIB // 4, requires_grad=True)
    start = time.perf_counter()
    with context:
        y = x
        for _ in range(count):
            y = y.exp()  # saves its result
    del y
    return (time.perf_counter() - start) / count


def row(name, unit, scale, values, baselines):
    """A row as bench/README.md describes it; values are seconds, shown times `scale`."""
    value, baseline = statistics.median(values), statistics.median(baselines)
    return {
        "suite": "offload", "name": name, "value": value * scale, "unit": unit,
        "baseline": "the same without offload", "baseline_value": baseline * scale,
        "ratio": value / baseline, "spread": (max(values) - min(values)) / value, "label": "real",
    }


def alternate(measure, offload):
    """Seconds with and without the offload, alternated, after one warm-up of each."""
    values, baselines = [], []
    for repetition in range(REPETITIONS + 1):
        with_offload, plain = measure(offload), measure(nullcontext())
        if repetition > 0:
            values.append(with_offload)
            baselines.append(plain)
    return values, baselines


def measure_rows(swap):
    step = Step()
    roomy = frostline.offload(dram="4GiB")
    values, baselines = alternate(step.seconds, roomy)
    saved = roomy.stats()["saved_bytes"] // (REPETITIONS + 1)
    rows = [row("training step, all in DRAM", "s", 1, values, baselines)]
    tight = frostline.offload(dram=saved // 4, swap=swap)
    values, baselines = alternate(step.seconds, tight)
    rows.append(row("training step, a quarter in DRAM", "s", 1, values, baselines))
    values, baselines = alternate(save_seconds, roomy)
    rows.append(row("save a tensor of 1 MiB", "us", 1e6, values, baselines))
    return rows


def print_table(rows):
    print(f"{'name':<34} {'median':>10} {'unit':<5} {'baseline':>10} {'ratio':>6} {'spread':>7}"
          "  label")
    for each in rows:
        print(f"{each['name']:<34} {each['value']:>10.3f} {each['unit']:<5} "
              f"{each['baseline_value']:>10.3f} {each['ratio']:>6.2f} {each['spread']:>6.0%}  "
              f"{each['label']}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as swap:
        rows = measure_rows(swap)
    print_table(rows)
    if arguments.json:
        try:
            arguments.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            print(f"bench offload: error: cannot write '{arguments.json}': {error}",
                  file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
