"""What the demo says and leaves behind when something goes wrong, with a stand-in for frostline."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import DEMO, TINY, demo_command, stand_in_environment


def error_lines(done):
    return [line for line in done.stderr.splitlines() if line.startswith("demo: ")]


def wait_for_pmem_file(demo, folder, pattern):
    """Until the offloaded child is at work."""
    deadline = time.monotonic() + 120
    while not list(folder.glob(pattern)):
        assert time.monotonic() < deadline and demo.poll() is None
        time.sleep(0.05)


def test_a_run_without_fault_passes(run_tiny, tmp_path):
    done = run_tiny()
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "report/summary.json").read_text())["passed"] is True
    assert list((tmp_path / "work").iterdir()) == []


def test_one_flipped_bit_fails_the_demo(run_tiny, tmp_path):
    done = run_tiny("flip")
    assert done.returncode == 1
    assert "FAILED: " in done.stdout and "DIFFERENT" in done.stdout
    summary = json.loads((tmp_path / "report/summary.json").read_text())
    assert summary["passed"] is False
    assert summary["weights_identical"] is False
    assert "Failed" in (tmp_path / "report/index.html").read_text()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("raise", r"the offloaded run failed: (\w+: )?MemoryError: the stand-in has no memory"),
        ("kill", r"the offloaded run was killed \(signal 9\), most likely because memory ran out"),
    ],
)
def test_a_child_that_dies_gives_one_clear_line(run_tiny, tmp_path, fault, expected):
    (tmp_path / "report").mkdir()
    (tmp_path / "report/summary.json").write_text("{}")  # of an earlier run
    done = run_tiny(fault)
    assert done.returncode == 1
    assert re.match(f"demo: {expected}", error_lines(done)[0])
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "work").iterdir()) == []
    assert not (tmp_path / "report/summary.json").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupting_leaves_nothing_behind(tmp_path, number):
    work = tmp_path / "work"
    work.mkdir()
    places = ["--workdir", work, "--out", tmp_path / "report", "--text", Path(__file__)]
    demo = subprocess.Popen(
        demo_command(*TINY, *places),
        env=stand_in_environment("hang"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_for_pmem_file(demo, work, "*/*.pmem")
    demo.send_signal(number)
    output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert output.rstrip().endswith("demo: interrupted")
    assert "Traceback" not in output
    assert list(work.iterdir()) == []


def test_what_a_killed_demo_left_is_removed_by_the_next(run_tiny, tmp_path):
    work = tmp_path / "work"
    (work / "frostline-demo-of-mine").mkdir(parents=True)  # no demo's, whatever its name
    places = ["--workdir", work, "--out", tmp_path / "report", "--text", Path(__file__)]
    demo = subprocess.Popen(
        demo_command(*TINY, *places, "--pmem-dir", tmp_path),
        env=stand_in_environment("hang"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_for_pmem_file(demo, tmp_path, "frostline-demo-*.pmem")
    beside = run_tiny("", "--pmem-dir", tmp_path)
    assert beside.returncode == 0, beside.stdout + beside.stderr
    assert len(list(work.iterdir())) == 2, "the demo that lives keeps its directory"
    os.killpg(demo.pid, signal.SIGKILL)
    demo.wait()
    after = run_tiny("", "--pmem-dir", tmp_path)
    assert after.returncode == 0, after.stdout + after.stderr
    assert [left.name for left in work.iterdir()] == ["frostline-demo-of-mine"]
    assert list(tmp_path.glob("*.pmem")) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--steps", "1"], "--steps must be at least 2, not 1"),
        (["--width", "33"], "--width 33 is no multiple of --heads 2"),
        (["--layers", "0"], "--layers must be at least 1, not 0"),
        (["--threads", "0"], "--threads must be at least 1, not 0"),
        (["--context", "1000000"], "too few for a context of 1000000"),
        (["--text", "/nowhere/text"], "cannot read /nowhere/text: No such file or directory"),
        (["--workdir", "/nowhere/deep/work"], "cannot use /nowhere/deep/work to work in"),
    ],
)
def test_bad_arguments_give_one_clear_line(run_tiny, arguments, expected):
    done = run_tiny("", *arguments)
    assert done.returncode == 1
    (line,) = error_lines(done)
    assert expected in line
    assert "Traceback" not in done.stderr


def test_missing_package_gives_one_clear_line(tmp_path):
    """-I ignores PYTHONPATH; the script's own folder and an installed torch stay on the path."""
    arguments = [*TINY, "--out", tmp_path / "report"]
    start = f"import sys; sys.path.insert(0, {str(DEMO.parent)!r}); import demo; "
    call = f"sys.exit(demo.main({list(map(str, arguments))!r}))"
    done = subprocess.run(
        [sys.executable, "-c", "import torch; " + start + call],
        env={**os.environ, "PYTHONPATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "the Python package frostline is missing" in done.stderr
    assert "Traceback" not in done.stderr
