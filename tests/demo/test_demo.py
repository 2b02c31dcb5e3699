"""The demo as a user runs it, once, with the real library: what it promises must hold."""

import importlib.util
import json
import re
import subprocess

import pytest
from conftest import demo_command

TIERS = ("dram", "pmem", "swap")
MOST_RATIO = 1.5
LEAST_SAVING = 0.30


def run_quick(work, out):
    return subprocess.run(
        demo_command("--quick", "--workdir", work, "--out", out),
        capture_output=True,
        text=True,
        timeout=290,
    )


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """(output, summary, page, working directory) of one quick run that ended well."""
    if importlib.util.find_spec("frostline") is None:
        pytest.fail(
            "the Python package frostline is missing: build the project, then put build/python "
            "on PYTHONPATH",
            pytrace=False,
        )
    work, out = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("out") / "report"
    done = run_quick(work, out)
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


def test_peak_memory_is_much_lower(quick):
    _, summary, _, _ = quick
    plain, offloaded = summary["peak_rss_plain_bytes"], summary["peak_rss_offloaded_bytes"]
    # Otherwise the two figures are not those of this model.
    assert plain > summary["activation_bytes"] + summary["resident_before_bytes"] // 2
    saving = 1 - offloaded / plain
    assert saving >= LEAST_SAVING, f"peak memory is only {saving:.0%} lower"


def test_step_times_are_consistent(quick):
    _, summary, _, _ = quick
    assert summary["step_plain_s"] > 0 and summary["step_offloaded_s"] > 0
    ratio = summary["step_offloaded_s"] / summary["step_plain_s"]
    assert summary["step_ratio"] == pytest.approx(ratio)
    for mode in ("plain", "offloaded"):
        low, high = summary["step_spread_s"][mode]
        assert low <= summary[f"step_{mode}_s"] <= high


def test_step_time_is_bounded(quick, tmp_path):
    """Another program on the machine can stretch one of the two runs; a second attempt decides."""
    _, summary, _, _ = quick
    if summary["step_ratio"] > MOST_RATIO:
        done = run_quick(tmp_path, tmp_path / "report")
        assert done.returncode == 0, done.stdout + done.stderr
        summary = json.loads((tmp_path / "report/summary.json").read_text(encoding="utf-8"))
    assert summary["step_ratio"] <= MOST_RATIO, summary["step_times_s"]


def test_every_tier_is_used_within_its_budget(quick):
    _, summary, _, _ = quick
    assert set(summary["tiers"]) == set(TIERS)
    for name, tier in summary["tiers"].items():
        assert 0 < tier["peak_bytes"] <= tier["budget_bytes"], name
        assert tier["moved_in_bytes"] > 0 and tier["moved_out_bytes"] > 0, name
    quarter = summary["activation_bytes"] // 4
    assert summary["tiers"]["dram"]["budget_bytes"] <= quarter


def test_what_is_emulated_is_called_so_everywhere(quick):
    output, summary, page, _ = quick
    label = summary["tiers"]["pmem"]["label"]
    assert label in ("real", "emulated")
    assert summary["tiers"]["dram"]["label"] == "real"
    if label == "emulated":  # everywhere but on a DAX file system
        assert "emulated: a file without DAX" in output
        assert '<span class="tag emulated">emulated</span>' in page
        assert any("pmem is emulated" in note for note in summary["notes"])


def test_versions_and_threads_are_recorded(quick):
    _, summary, _, _ = quick
    assert {"torch", "frostline", "python"} <= set(summary["versions"])
    assert all(summary["versions"].values())
    assert summary["threads"] >= 1


def test_page_needs_nothing_from_outside(quick):
    _, _, page, _ = quick
    assert "http:" not in page and "https:" not in page
    assert not re.search(r"(src|href)\s*=|url\(|@import", page)


def test_working_directory_is_left_empty(quick):
    _, _, _, work = quick
    assert list(work.iterdir()) == []
