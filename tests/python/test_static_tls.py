"""Where other libraries took the room that the loader keeps for thread-local data, importing says
what to do, and doing that helps.
"""

from pathlib import Path

import pytest
from emulated_cuda import LIBRARY

import frostline

C10 = Path(frostline.__file__).with_name("_c10.so")
TUNABLE = "glibc.rtld.optional_static_tls=4096"

# Copies of a library that has such data stand for others.
OPENING = f"""
import ctypes, shutil
EMULATOR, C10 = {str(LIBRARY.resolve())!r}, {str(C10)!r}

def fill(library, most=50):
    name = library.rpartition("/")[2]
    for number in range(most):
        copy = shutil.copy(library, f"./{{number}}-{{name}}")
        try:
            ctypes.CDLL(copy)
        except OSError as error:
            assert "static TLS" in str(error), error
            return number
    return most
"""


def test_an_import_without_room_says_what_to_do_and_that_helps(run_script, monkeypatch):
    done = run_script(OPENING + "print(fill(EMULATOR), flush=True)\nimport frostline")
    assert done.returncode != 0
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("ImportError: ") and "static TLS" in line and TUNABLE in line, line
    monkeypatch.setenv("GLIBC_TUNABLES", TUNABLE)
    done = run_script(OPENING + f"fill(EMULATOR, {done.stdout})\nimport frostline")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not C10.exists(),
                    reason="the headers of PyTorch, which _c10.so is built with, are not there")
def test_what_stands_on_pytorch_says_it_too(run_script):
    done = run_script(OPENING + f"""
import torch, frostline
frostline.torch
fill(EMULATOR)
fill(C10)
try:
    frostline.torch.enable_cpu("64MiB")
except frostline.Error as error:
    assert {TUNABLE!r} in str(error), error
else:
    raise AssertionError("there was room")
assert frostline.torch.cpu_stats()["allocations"] == 0
""")
    assert done.returncode == 0, done.stderr
