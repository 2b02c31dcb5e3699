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
    for part in ("usage: frostline", "info", "check", "plan", "--version"):
        assert part in done.stdout


@pytest.mark.parametrize("command", ["info", "check", "plan"])
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


@pytest.fixture
def own_cache(tmp_path_factory, monkeypatch):
    """A cache of measurements that starts empty."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.delenv("FROSTLINE_CALIBRATION", raising=False)
    return folder / "frostline" / "calibration.json"


def info_of(*arguments):
    done = run("info", "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done
    return json.loads(done.stdout)


def test_info_of_the_machine_and_its_tiers(tmp_path, own_cache):
    facts = info_of("--pmem", tmp_path / "pmem", "--swap", tmp_path)
    nodes = facts["topology"]["nodes"]
    assert sum(len(node["cpus"]) for node in nodes) >= 1
    for node in nodes:
        assert set(node) == {"id", "memory_bytes", "cpus", "memory_only"}
        assert node["memory_only"] == (node["cpus"] == [])
    for device in facts["topology"]["devices"]:
        assert set(device) == {"kind", "name", "pci_address", "node"}
        assert device["kind"] in {"gpu", "pmem", "block"}
    tiers = {tier["name"]: tier for tier in facts["tiers"]}
    assert list(tiers) == ["device", "dram", "pmem", "swap"]
    assert not tiers["device"]["usable"] and tiers["device"]["because"]
    for name in ("dram", "pmem", "swap"):
        assert set(tiers[name]) == {"name", "usable", "location", "label", "access", "fallback",
                                    "node", "measured"}
        assert tiers[name]["usable"]
        assert set(tiers[name]["measured"]) == {
            "read_bytes_per_s", "write_bytes_per_s", "read_latency_ns", "write_latency_ns",
            "best_writers", "measured_at", "cached"}
        assert tiers[name]["measured"]["read_bytes_per_s"] > 0
        assert not tiers[name]["measured"]["cached"]
    assert tiers["pmem"]["label"] == "emulated"
    assert facts["calibration"]["cache"] == str(own_cache) and own_cache.exists()
    assert facts["calibration"]["cache_problem"] is None
    assert 0 < facts["calibration"]["seconds"] < 2
    assert os.listdir(tmp_path) == []

    again = info_of("--pmem", tmp_path / "pmem", "--swap", tmp_path)
    anew = info_of("--pmem", tmp_path / "pmem", "--swap", tmp_path, "--measure")
    for before, cached, measured in zip(facts["tiers"], again["tiers"], anew["tiers"]):
        if before["usable"]:
            assert cached["measured"] == {**before["measured"], "cached": True}
            assert not measured["measured"]["cached"]


def test_info_as_text_has_a_line_for_each_tier(tmp_path, own_cache):
    lines = run("info", "--swap", tmp_path).stdout.splitlines()
    for name in ("device", "dram", "pmem", "swap"):
        assert sum(line.split()[:1] == [name] for line in lines) == 1, lines
    assert any(line.startswith("node 0 ") and "CPUs" in line for line in lines), lines
    swap = next(line for line in lines if line.startswith("swap"))
    assert swap.count("GiB/s") == 2 and "measured now" in swap


def test_info_prints_the_rest_when_a_path_is_bad(tmp_path, own_cache):
    missing = tmp_path / "missing"
    done = run("info", "--json", "--pmem", missing / "pmem", "--swap", missing)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("frostline: error: ") and str(missing) in line for line in lines)
    tiers = {tier["name"]: tier for tier in json.loads(done.stdout)["tiers"]}
    assert tiers["dram"]["usable"] and not tiers["pmem"]["usable"] and not tiers["swap"]["usable"]


def test_check_moves_data_through_all_tiers(tmp_path):
    done = run("check", "--dram", "4MiB", "--pmem", tmp_path / "pmem", "--pmem_bytes", "4MiB",
               "--swap", tmp_path, "--swap_bytes", "16MiB")
    assert done.returncode == 0 and done.stderr == "", done
    for name in ("dram", "pmem", "swap"):
        assert any(line.startswith(name) for line in done.stdout.splitlines()), done.stdout
    assert "each tier was written and read by itself" in done.stdout
    assert os.listdir(tmp_path) == []


def test_check_of_dram_alone():
    done = run("check", "--dram", "4MiB")
    assert done.returncode == 0 and "together they held 4.0 MiB unchanged" in done.stdout


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
    (["info", "--swap", ""], "swap"),
    (["chekc"], "chekc"),
    (["--verson"], "verson"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_a_command_line_that_cannot_be_used(arguments, expected):
    line = refused(2, *arguments)
    assert expected in line
    command = f"{arguments[0]} " if arguments[0] in ("info", "check") else ""
    assert line.endswith(f"; see frostline {command}--help")


@pytest.fixture
def emulator(monkeypatch):
    """The emulated driver, of two GPUs."""
    monkeypatch.setenv("FROSTLINE_CUDA_DRIVER", str(PROGRAM.parents[1] / "lib" /
                                                   "libfrostline_emulator.so"))
    monkeypatch.setenv("FROSTLINE_EMULATOR_DEVICES", "2")


def test_check_of_a_device_tier(emulator, tmp_path):
    done = run("check", "--device", "9MiB", "--gpu", "1", "--dram", "4MiB", "--swap", tmp_path,
               "--swap_bytes", "64MiB", "--verify", "false")
    assert done.returncode == 0 and done.stderr == "", done
    device = next(line for line in done.stdout.splitlines() if line.startswith("device"))
    assert "emulated" in device and "8.0 MiB" in device and "GPU 1" in device
    assert "the budget is 8388608 bytes and not 9437184" in done.stdout
    assert "each tier was written and read by itself" in done.stdout


def test_check_says_what_is_wrong_with_a_device_tier(emulator):
    assert "has 2" in refused(1, "check", "--device", "8MiB", "--gpu", "2", "--dram", "4MiB")
    assert "less than" in refused(1, "check", "--device", "1MiB", "--dram", "4MiB")
    assert "gpu=1" in refused(1, "check", "--gpu", "1", "--dram", "4MiB")
    assert "'x' is not the number of a GPU" in refused(2, "check", "--gpu", "x", "--dram", "4MiB")
    assert "verify: 'maybe'" in refused(2, "check", "--verify", "maybe", "--dram", "4MiB")


def test_a_library_that_is_no_driver_is_named(monkeypatch):
    monkeypatch.setenv("FROSTLINE_CUDA_DRIVER", "libm.so.6")
    line = refused(1, "check", "--device", "8MiB", "--dram", "1MiB")
    assert "libm.so.6 is no CUDA driver" in line


def test_info_keeps_nothing_when_measuring_is_off(own_cache, monkeypatch):
    monkeypatch.setenv("FROSTLINE_CALIBRATION", "off")
    text = run("info").stdout
    assert "calibration.json" not in text and "FROSTLINE_CALIBRATION is off" in text
    assert info_of()["calibration"]["cache"] is None


def test_check_without_a_budget():
    assert "dram" in refused(1, "check") or "dram" in refused(2, "check")


def test_check_says_when_there_is_too_little_to_check(tmp_path):
    assert "too little to check" in refused(1, "check", "--dram", "4KiB")
    assert "far" in refused(1, "check", "--dram", "4MiB", "--far_node", "0", "--far_bytes", "4KiB")


def test_places_that_are_not_there(tmp_path):
    missing = tmp_path / "missing"
    assert str(missing) in refused(1, "check", "--dram", "1MiB", "--swap", missing)
    assert str(missing) in refused(1, "check", "--dram", "1MiB", "--pmem", missing / "pmem")
    (tmp_path / "small").touch(mode=0o600)
    (tmp_path / "small").write_bytes(b"x")
    assert "too small" in refused(1, "check", "--dram", "1MiB", "--pmem", tmp_path / "small")


def test_bench_refuses_a_file_that_it_could_not_write_before_it_measures(tmp_path):
    bench = PROGRAM.with_name("frostline_bench")
    for path in (tmp_path / "no" / "file", tmp_path):
        done = subprocess.run([bench, "residency", "--json", path], capture_output=True, text=True,
                              timeout=60)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"frostline_bench: error: cannot write '{path}'")
        assert len(done.stderr.splitlines()) == 1


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
