"""The child process of the demo: trains in one mode and writes what it measured as JSON.

Usage: python train.py JOB.json. On standard output it prints one JSON object a line: first
{"event": "ready"}, then {"event": "step", "index": i} after each training step. When it fails, the
last line on standard error says why.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import traceback
from pathlib import Path

import torch

from data import Batches
from measure import (
    ResidentSampler,
    SavedBytes,
    peak_resident_bytes,
    resident_now,
    weights_sha256,
)
from model import ByteLanguageModel


class Plain:
    """Ordinary training: autograd keeps what it saves."""

    version = None

    @contextlib.contextmanager
    def step(self):
        yield

    def end_step(self) -> None:
        pass

    def finish(self) -> dict:
        return {}


class Offloaded:
    """The same training with saved activations handed to Frostline."""

    def __init__(self, tiers: dict):
        import frostline  # only here: the plain run must not depend on it

        self.version = frostline.__version__
        self._offload = frostline.offload(**tiers)

    @contextlib.contextmanager
    def step(self):
        with self._offload:
            yield

    def end_step(self) -> None:
        self._offload.step()

    def finish(self) -> dict:
        measured = {"stats": self._offload.stats(), "timeline": self._offload.timeline()}
        self._offload.close()
        return measured


class Training:
    """One deterministic training run; all times are seconds, marks on the monotonic clock."""

    def __init__(self, job: dict):
        torch.manual_seed(job["seed"])
        shape = job["shape"]
        self.model = ByteLanguageModel(
            shape["layers"], shape["width"], shape["heads"], shape["context"]
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        text = Path(job["text"]).read_bytes()
        self.batches = Batches(text, shape["batch"], shape["context"], job["seed"])
        self.mode = Offloaded(job["tiers"]) if job["tiers"] else Plain()
        self.losses: list[float] = []
        self.marks: list[list[float]] = []  # per step: start, end of forward, of backward, end

    def step(self, count: SavedBytes | None = None) -> None:
        tokens, targets = self.batches.next()
        started = time.monotonic()
        with self.mode.step():
            with count if count else contextlib.nullcontext():
                loss = self.model(tokens, targets)
            forward_done = time.monotonic()
            loss.backward()
        backward_done = time.monotonic()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.mode.end_step()
        self.marks.append([started, forward_done, backward_done, time.monotonic()])
        self.losses.append(loss.item())


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


def run(job: dict) -> dict:
    """Trains as the job says and returns the result that the parent reads."""
    torch.set_num_threads(job["threads"])
    training = Training(job)
    # Counting happens in the warm-up step, which is not timed, and holds no memory.
    count = SavedBytes(training.model) if job["count_saved"] else None
    say(event="ready")
    before = resident_now()[0]
    with ResidentSampler() as sampler:
        for index in range(job["steps"]):
            training.step(count if index == 0 else None)
            say(event="step", index=index)
    return {
        "kind": "process",
        "mode": job["mode"],
        "losses": training.losses,
        "losses_hex": [loss.hex() for loss in training.losses],
        "weights_hash": weights_sha256(training.model),
        "parameters": sum(p.numel() for p in training.model.parameters()),
        "marks": training.marks,
        "resident_before_bytes": before,
        "peak_rss_bytes": peak_resident_bytes(),
        "resident": sampler.samples,
        "activations": count.result() if count else None,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "frostline": training.mode.version,
        "operations": None,
        **training.mode.finish(),
    }


def main() -> int:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        result = run(job)
    except Exception as error:
        traceback.print_exc()
        # The parent shows the last line, and a traceback may end in something else: PyTorch adds
        # lines of its own to what was raised inside of a hook.
        reason = (str(error).strip().splitlines() or ["no message"])[0]
        print(f"{type(error).__name__}: {reason}", file=sys.stderr)
        return 1
    Path(job["result"]).write_text(json.dumps(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
