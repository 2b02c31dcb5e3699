"""A stand-in for the package frostline that goes wrong on purpose, to see what the demo says.

It offloads nothing. STAND_IN_FAULT chooses what happens on the first unpacked activation (the
tensors before it, of the loss function, are used for their shape only): "flip" changes one bit of
it, "raise" raises, "kill" ends the process as the kernel does when memory runs out, "hang" waits
for ever; without it the run is an ordinary one.
"""

import os
import signal
import time

import torch

__version__ = "stand-in"


class offload:  # noqa: N801 (the real one is called like this)
    def __init__(self, dram, pmem, swap, min_bytes, pmem_bytes, swap_bytes, verify=False):
        self._pmem = pmem
        self._fault = os.environ.get("STAND_IN_FAULT", "")
        self._started = time.monotonic()
        self._hooks = None
        open(pmem, "wb").close()
        sizes = {"dram": dram, "pmem": pmem_bytes, "swap": swap_bytes}
        self._budgets = {name: int(size[: -len("MiB")]) << 20 for name, size in sizes.items()}

    def __enter__(self):
        self._hooks = torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, self._unpack)
        self._hooks.__enter__()
        return self

    def __exit__(self, *error):
        self._hooks.__exit__(*error)

    def _unpack(self, tensor):
        if tensor.dim() < 3:
            return tensor
        fault, self._fault = self._fault, ""
        if fault == "flip":
            changed = tensor.detach().clone(memory_format=torch.contiguous_format)
            bits = changed.view(-1)[:1].view(torch.int32)
            bits ^= 1 << 20
            return changed
        if fault == "raise":
            raise MemoryError("the stand-in has no memory")
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "hang":
            time.sleep(600)
        return tensor

    def step(self):
        pass

    def stats(self):
        def tier(name, budget):
            return {
                "kind": name,
                "label": "emulated" if name == "pmem" else "real",
                "budget_bytes": budget,
                "used_bytes": 0,
                "peak_bytes": 1,
                "moved_in_bytes": 1,
                "moved_out_bytes": 1,
                "open": True,
            }

        counters = ("saved", "saved_bytes", "passed_through", "hits", "stalls", "moves")
        tiers = {name: tier(name, budget) for name, budget in self._budgets.items()}
        return {"tiers": tiers, "stall_s": 0.0, **dict.fromkeys(counters, 0)}

    def timeline(self):
        return {"time_s": [self._started], "dram": [1], "pmem": [1], "swap": [1]}

    def close(self):
        os.unlink(self._pmem)
