"""However the process ends, it neither hangs nor crashes, and it leaves nothing behind (C39)."""

import json
import os
import signal

import pytest

import frostline

# Imports torch once and forks for each ending, so that each child ends as a process of its own
# does: what it was given runs at the top level of its main module.
RUNNER = """
import json, os, signal, sys, torch, frostline
torch.set_num_threads(1)
opening, endings = json.loads(sys.argv[1])
children = {}
for name, source in endings.items():
    folder = name.replace(" ", "-")
    os.makedirs(folder + "/swap")
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        errors = os.open("errors", os.O_CREAT | os.O_WRONLY, 0o600)
        os.dup2(errors, 2)
        signal.alarm(60)
        break
    children[child] = name
else:
    statuses = {}
    while children:
        child, status = os.waitpid(-1, 0)
        statuses[children.pop(child)] = (
            os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status))
    print(json.dumps(statuses))
    os._exit(0)
exec(opening + source)
"""

OPENING = """
offload = frostline.offload(dram="512KiB", min_bytes="16KiB", pmem="pmem", pmem_bytes="4MiB",
                            swap="swap", swap_bytes="64MiB", verify=True)
x = torch.randn(512, 128, requires_grad=True)
def forward(count=24):
    y = x
    with offload:
        for _ in range(count):
            y = y.exp().tanh()
    return y
y = forward()
"""

ENDINGS = {
    "with tensors offloaded": ("", 0),
    "after backward": ("y.sum().backward()", 0),
    "inside the context": ("offload.__enter__(); y = y.exp().tanh().exp()", 0),
    "with an unpacked tensor alive": ("kept = y.grad_fn._saved_result; z = forward()", 0),
    "with an unpacked tensor alive and moves under way":
        ("kept = y.grad_fn._saved_result; z = [forward(6) for _ in range(6)]", 0),
    "by an exception": ("raise ValueError('the end')", 1),
    "by an exception in the context": ("with offload: z = y.exp(); raise ValueError('the end')", 1),
    "by sys exit": ("sys.exit(7)", 7),
    "by an interrupt": ("raise KeyboardInterrupt", -signal.SIGINT),
    "by an interrupt from outside": ("os.kill(os.getpid(), signal.SIGINT); forward(1000)",
                                     -signal.SIGINT),
    "by termination": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "by a kill": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "by os exit": ("os._exit(3)", 3),
    "after close": ("offload.close()", 0),
    "with a graph in a cycle": ("cycle = [y]; cycle.append(cycle); del y", 0),
    "while an exit function trains": (
        "import atexit; atexit.register(lambda: forward(4).sum().backward())", 0),
    "with large moves under way": (
        "offload = frostline.offload(dram='80MiB', swap='swap', swap_bytes='512MiB', verify=True)\n"
        "x = torch.ones(4 << 20, requires_grad=True)\ny = forward(4)", 0),
    "while a thread still trains": (
        "import threading; threading.Thread(target=lambda: [forward(6).sum().backward() "
        "for _ in range(20)]).start()", 0),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Where the processes ran, and the status of each."""
    import subprocess
    import sys

    place = tmp_path_factory.mktemp("endings")
    work = json.dumps([OPENING, {name: source for name, (source, _) in ENDINGS.items()}])
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", RUNNER, work], cwd=place,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return place, json.loads(done.stdout)


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_process_ends(ending, ended):
    place, statuses = ended
    folder = place / ending.replace(" ", "-")
    errors = (folder / "errors").read_text()
    expected = ENDINGS[ending][1]
    assert statuses[ending] == expected, errors
    if expected >= 0:
        assert "Fatal" not in errors and "terminate" not in errors, errors
    if expected == 0:
        assert "Traceback" not in errors and "ignored" not in errors, errors
    assert os.listdir(folder / "swap") == []
    again = frostline.offload(dram="1MiB", pmem=folder / "pmem", pmem_bytes="4MiB",
                              swap=folder / "swap", swap_bytes="1MiB")
    assert again.stats()["tiers"]["pmem"]["used_bytes"] == 0


@pytest.mark.parametrize("ending", ["after backward", "with tensors offloaded", "after close"])
def test_a_pmem_file_that_was_made_for_the_run_goes_with_it(ending, run_script, tmp_path):
    """Or else it takes its room for ever, and a later run that asks for more is refused."""
    done = run_script("import torch, frostline\n" + OPENING.replace('swap="swap"', 'swap="."')
                      + ENDINGS[ending][0])
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "pmem").exists()


def test_an_exit_function_registered_before_the_import_may_train(run_script):
    done = run_script("import atexit\nfinal = []\natexit.register(lambda: final[0]())\n"
                      "import torch, frostline\n" + OPENING.replace('swap="swap"', 'swap="."')
                      + """
def train():
    z = forward(4)
    z.sum().backward()
    y.sum().backward()
    print("trained", bool(torch.isfinite(x.grad).all()))
final.append(train)
""")
    assert done.returncode == 0, done.stderr
    assert "trained True" in done.stdout, done.stderr


def test_importing_frostline_does_not_import_torch(run_script):
    done = run_script("import sys, frostline\nfrostline.parse_byte_size('1MiB')\n"
                      "assert 'torch' not in sys.modules\nassert frostline.offload\n"
                      "assert not hasattr(frostline, 'onload')\nassert 'torch' in sys.modules")
    assert done.returncode == 0, done.stderr
