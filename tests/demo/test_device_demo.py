"""`./run demo --device` as a user runs it, once, on the emulator: what it promises must hold."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, demo_command

BUILD = Path(os.environ.get("FROSTLINE_BUILD_DIR", ROOT / "build"))
EMULATOR = BUILD / "lib" / "libfrostline_emulator.so"
TIERS = ["device", "dram", "pmem", "swap"]


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """(output, summary, page, working directory) of one quick run that ended well."""
    work, out = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("out") / "report"
    arguments = ["--device", "--quick", "--build", BUILD, "--workdir", work, "--out", out]
    done = subprocess.run(
        demo_command(*arguments),
        env={**os.environ, "FROSTLINE_CUDA_DRIVER": str(EMULATOR)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    page = (out / "index.html").read_text(encoding="utf-8")
    return done.stdout, summary, page, work


def test_losses_and_weights_are_bit_identical(quick):
    _, summary, _, _ = quick
    assert summary["losses_identical"] is True
    assert summary["weights_identical"] is True
    assert summary["losses_hex"]["plain"] == summary["losses_hex"]["offloaded"]
    assert len(summary["losses"]["plain"]) == summary["plan"]["steps"]
    assert summary["losses"]["plain"][-1] < summary["losses"]["plain"][0], "it must learn"
    assert re.fullmatch("[0-9a-f]{16}", summary["weights_hash"]["plain"])


def test_the_device_had_half_of_what_the_plain_run_took(quick):
    _, summary, _, _ = quick
    plain, offloaded = summary["peak_device_plain_bytes"], summary["peak_device_offloaded_bytes"]
    assert summary["limit_bytes"] == plain // 2
    # The emulated device has no more; less than a quarter would mean that it is not made use of.
    assert plain // 4 < offloaded <= plain // 2


def test_every_tier_is_used_within_its_budget(quick):
    _, summary, _, _ = quick
    assert list(summary["tiers"]) == TIERS
    for name, tier in summary["tiers"].items():
        assert 0 < tier["peak_bytes"] <= tier["budget_bytes"], name
        assert tier["moved_in_bytes"] > 0 and tier["moved_out_bytes"] > 0, name
    assert summary["tiers"]["device"]["budget_bytes"] < summary["limit_bytes"]


def test_what_is_emulated_is_called_so_everywhere(quick):
    output, summary, page, _ = quick
    assert summary["tiers"]["device"]["label"] == "emulated"
    assert "device (emulated)" in output
    assert "peak device memory, emulated" in output and "step time, median, emulated" in output
    assert re.search(r"^  device .* emulated$", output, re.M)
    assert "emulated links: 250 MB/s to the device" in output and "PCIe 4 x16" in output
    assert 'Step time <span class="tag emulated">emulated</span>' in page
    assert any("GPU is emulated" in note for note in summary["notes"])


def test_copies_run_beside_kernels_and_the_page_shows_it(quick):
    output, summary, page, _ = quick
    overlap = summary["overlap"]
    assert 0 < overlap["both_s"] <= min(overlap["copies_s"], overlap["kernels_s"])
    assert "copies beside kernels" in output
    assert 'class="lane kernel"' in page and 'class="lane both"' in page


def test_page_needs_nothing_from_outside(quick):
    _, _, page, _ = quick
    assert "http:" not in page and "https:" not in page
    assert not re.search(r"(src|href)\s*=|url\(|@import", page)


def test_working_directory_is_left_empty(quick):
    _, _, _, work = quick
    assert list(work.iterdir()) == []


def test_an_emulated_device_with_too_little_memory_gives_one_clear_line(tmp_path):
    """The device is too small for the plain run, as a GPU may be."""
    places = ["--build", BUILD, "--workdir", tmp_path / "work", "--out", tmp_path / "report"]
    done = subprocess.run(
        demo_command("--device", "--quick", *places),
        env={
            **os.environ,
            "FROSTLINE_CUDA_DRIVER": str(EMULATOR),
            "FROSTLINE_EMULATOR_MEMORY": "16MiB",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("demo: ")]
    assert lines[0].startswith("demo: the plain run failed: frostline_train: error: ")
    assert "OUT_OF_MEMORY" in lines[0] and "Traceback" not in done.stderr
    assert not (tmp_path / "report" / "summary.json").exists()
