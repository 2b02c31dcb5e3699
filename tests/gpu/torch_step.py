"""A training step of PyTorch's: plain, with save_on_cpu, and with frostline.offload.

Usage: torch_step.py --results FILE [sizes]. The three take turns, each with a model of its own that
begins the same, so that the losses of a step must be the same in every bit. Exits 77 with a reason
where it cannot run, and 1 if losses differ.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from contextlib import nullcontext

from training_run import CONTEXT, HEADS, missing_gpu, missing_module, parser

# Before CUDA starts: without it cuBLAS may add in another order each time.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

WARM_UP = 2


class Way:
    """A model with its optimizer, trained in one of the ways."""

    def __init__(self, torch, arguments, context):
        from model import ByteLanguageModel

        torch.manual_seed(0)
        self._torch = torch
        self._device = torch.device(arguments.device)
        self._context = context
        self._model = ByteLanguageModel(arguments.layers, arguments.width, HEADS, CONTEXT)
        self._model.to(self._device)
        self._optimizer = torch.optim.AdamW(self._model.parameters())
        self.losses, self.seconds, self.peak_bytes = [], [], 0

    def _wait(self):
        if self._device.type == "cuda":
            self._torch.cuda.synchronize(self._device)

    def step(self, tokens):
        """One step, timed from an idle device to an idle device."""
        on_gpu = self._device.type == "cuda"
        self._wait()
        before = self._torch.cuda.memory_allocated(self._device) if on_gpu else 0
        if on_gpu:
            self._torch.cuda.reset_peak_memory_stats(self._device)
        start = time.perf_counter()
        with self._context():
            loss = self._model(tokens[0], tokens[1])
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._wait()
        self.seconds.append(time.perf_counter() - start)
        self.losses.append(loss.item().hex())
        if on_gpu:  # beyond what all the models hold between steps
            peak = self._torch.cuda.max_memory_allocated(self._device) - before
            self.peak_bytes = max(self.peak_bytes, peak)

    def summary(self):
        """Median and spread without the warm-up."""
        timed = self.seconds[WARM_UP:]
        median = statistics.median(timed)
        return {"step_s": median, "spread": (max(timed) - min(timed)) / median,
                "peak_bytes": self.peak_bytes}


def ways(torch, frostline, arguments):
    """What is compared, by name, and the offload."""
    on_gpu = arguments.device.startswith("cuda")
    if on_gpu:
        torch.zeros(1, device=arguments.device)  # so that CUDA is in use before DRAM is set up
    offload = frostline.offload(dram=arguments.dram)
    save_on_cpu = torch.autograd.graph.save_on_cpu
    return {
        "plain": Way(torch, arguments, nullcontext),
        "save_on_cpu": Way(torch, arguments, lambda: save_on_cpu(pin_memory=on_gpu)),
        "frostline": Way(torch, arguments, lambda: offload),
    }, offload


def measure(torch, frostline, arguments):
    """The figures of all ways."""
    compared, offload = ways(torch, frostline, arguments)
    generator = torch.Generator().manual_seed(1)
    for _ in range(WARM_UP + arguments.steps):
        tokens = torch.randint(0, 256, (2, arguments.batch, CONTEXT), generator=generator)
        tokens = tokens.to(arguments.device)
        for way in compared.values():
            way.step(tokens)
        offload.step()
    stats = offload.stats()
    on_gpu = arguments.device.startswith("cuda")
    plain = compared["plain"].losses
    return {
        "device": torch.cuda.get_device_name(arguments.device) if on_gpu else "CPU",
        "torch": torch.__version__,
        "ways": {name: way.summary() for name, way in compared.items()},
        "identical": {name: way.losses == plain for name, way in compared.items()},
        "offloaded_bytes": stats["saved_bytes"],
        "dram_fallback": stats["tiers"]["dram"]["fallback"],
    }


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--dram", default="16GiB", help="budget of frostline.offload")
    arguments = options.parse_args()
    if missing := missing_module():
        print(missing)
        return 77
    import torch

    if missing := missing_gpu(arguments.device):
        print(missing)
        return 77
    import frostline

    torch.use_deterministic_algorithms(True)
    result = measure(torch, frostline, arguments)
    arguments.results.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    differing = [name for name, same in result["identical"].items() if not same]
    if differing:
        print(f"losses differ from the plain run's: {', '.join(differing)}", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
