"""`frostline` on the command line: what it prints, where, and with which status it ends."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import frostline
from conftest import ROOT

PROGRAM = Path(os.environ.get("FROSTLINE_BUILD_DIR", ROOT / "build")) / "bin" / "frostline"


def run(*arguments, **options):
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([PROGRAM, *map(str, arguments)], stderr=subprocess.PIPE, text=True,
                          timeout=60, **options)


def refused(status, *arguments):
    """Runs what must fail with one line on standard error; that line."""
    done = run(*arguments)
    assert done.returncode == status, done
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("frostline: error: "), done.stderr
    return lines[0]


def test_version():
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (
        0, f"frostline {frostline.__version__}\n", "")


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help(word):
    done = run(word)
    assert done.returncode == 0 and done.stderr == ""
    for part in ("usage: frostline", "info", "check", "--version"):
        assert part in done.stdout


@pytest.mark.parametrize("command", ["info", "check"])
def test_help_of_a_command(command):
    done = run(command, "--help")
    assert done.returncode == 0 and f"usage: frostline {command}" in done.stdout
    assert done.stderr == ""


def test_no_command_prints_the_usage():
    done = run()
    assert done.returncode == 2 and "usage: frostline" in done.stdout + done.stderr


def test_info():
    done = run("info")
    assert done.returncode == 0 and done.stderr == ""
    assert frostline.__version__ in done.stdout and "GPU" in done.stdout
    facts = json.loads(run("info", "--json").stdout)
    assert facts["version"] == frostline.__version__
    assert facts["cpus"] == os.sysconf("SC_NPROCESSORS_ONLN")
    assert facts["memory_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < facts["memory_available_bytes"] <= facts["memory_bytes"]
    assert isinstance(facts["gpus"], list)
    assert facts["gpus"] or facts["gpus_absent_because"]


def test_check_moves_data_through_all_tiers(tmp_path):
    done = run("check", "--dram", "4MiB", "--pmem", tmp_path / "pmem", "--pmem_bytes", "4MiB",
               "--swap", tmp_path, "--swap_bytes", "16MiB")
    assert done.returncode == 0 and done.stderr == "", done
    for name in ("dram", "pmem", "swap"):
        assert any(line.startswith(name) for line in done.stdout.splitlines()), done.stdout
    assert "went through all of them unchanged" in done.stdout
    assert os.listdir(tmp_path) == []


def test_check_of_dram_alone():
    done = run("check", "--dram", "4MiB")
    assert done.returncode == 0 and "4.0 MiB went through" in done.stdout


@pytest.mark.parametrize("arguments,expected", [
    (["check", "--dram", "12Q"], "dram"),
    (["check", "--dram", "-1"], "dram"),
    (["check", "--dram"], "dram"),
    (["check", "--dram", "1MiB", "--dramm", "2"], "dramm"),
    (["check", "--dram", "1MiB", "--swap_bytes", "x"], "swap_bytes"),
    (["check", "--dram", "1MiB", "--pmem", ""], "pmem"),
    (["check", "--dram", "1MiB", "--dram", "2MiB"], "dram"),
    (["check", "--dram", "1MiB", "extra"], ""),
    (["info", "--jsonn"], "json"),
    (["info", "extra"], ""),
    (["chekc"], "chekc"),
    (["--verson"], "verson"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_a_command_line_that_cannot_be_used(arguments, expected):
    assert expected in refused(2, *arguments)


def test_check_without_a_budget():
    assert "dram" in refused(1, "check") or "dram" in refused(2, "check")


def test_places_that_are_not_there(tmp_path):
    missing = tmp_path / "missing"
    assert str(missing) in refused(1, "check", "--dram", "1MiB", "--swap", missing)
    assert str(missing) in refused(1, "check", "--dram", "1MiB", "--pmem", missing / "pmem")
    (tmp_path / "small").touch(mode=0o600)
    assert "too small" in refused(1, "check", "--dram", "1MiB", "--pmem", tmp_path / "small")


def test_output_that_cannot_be_written():
    with open("/dev/full", "w") as full:
        done = run("info", stdout=full)
    assert done.returncode == 1
    assert done.stderr == "frostline: error: cannot write to standard output\n"


def test_output_whose_reader_has_gone():
    read, write = os.pipe()
    os.close(read)
    done = run("info", stdout=write)
    os.close(write)
    assert done.returncode != 0
