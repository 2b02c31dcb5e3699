"""What the training runs of the GPU check have in common: their sizes, and what they need."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

HEADS, CONTEXT = 8, 256


def parser(doc: str) -> argparse.ArgumentParser:
    """Of the options that each has; `doc` is its docstring."""
    options = argparse.ArgumentParser(description=doc.splitlines()[0])
    options.add_argument("--results", type=Path, required=True, metavar="FILE")
    options.add_argument("--device", default="cuda")
    for name, default in (("layers", 12), ("width", 768), ("batch", 32), ("steps", 9)):
        options.add_argument(f"--{name}", type=int, default=default)
    return options


def missing_module() -> str | None:
    """What keeps a run from starting, in words."""
    for module, what in (("torch", "PyTorch"), ("frostline", "Python module of Frostline")):
        if importlib.util.find_spec(module) is None:
            return f"there is no {what} here"
    return None


def missing_gpu(device: str) -> str | None:
    """What keeps a run from using the device, in words. Starts nothing on it."""
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        return "this PyTorch has no CUDA, or finds no GPU"
    return None
