"""What ran beside what: the arithmetic on spans of time, and the pages that show it."""

import pytest

import overlap
import report
import settings
import summary as summary_module


def test_union_of_spans_is_disjoint_and_in_order():
    spans = [(5.0, 6.0), (0.0, 2.0), (1.0, 1.5), (2.0, 3.0)]
    assert overlap.merged(spans) == [(0.0, 3.0), (5.0, 6.0)]
    assert overlap.merged(spans, gap_s=2.0) == [(0.0, 6.0)]
    assert overlap.merged([]) == []


def test_common_part_of_spans():
    left, right = [(0.0, 2.0), (3.0, 7.0)], [(1.0, 4.0), (5.0, 6.0), (8.0, 9.0)]
    assert overlap.common(left, right) == [(1.0, 2.0), (3.0, 4.0), (5.0, 6.0)]
    assert overlap.common(right, left) == overlap.common(left, right)
    assert overlap.common(left, []) == []


def test_overlap_leaves_out_the_warm_up(make_device_run):
    # Two timed steps, from 12 to 16 s; the kernel of 10 to 12 s is of the first, which warms up.
    found = overlap.overlap_of(make_device_run("offloaded"))
    assert found == {"kernels_s": 0.75, "copies_s": 0.5, "both_s": 0.25}
    assert overlap.describe_overlap(found) == ("50 %", "of 0.50 s of copies each step")


def test_a_device_that_does_not_tell_has_no_overlap(make_device_run):
    plain, offloaded = make_device_run("plain"), make_device_run("offloaded")
    offloaded["operations"] = None
    summary = summary_module.summarise(settings.FULL, [plain], [offloaded], [])
    assert summary["overlap"] is None
    assert "beside kernels" not in report.render_table(summary)
    assert overlap.render_overlap(summary, {}) == ""


@pytest.fixture
def device_summary(make_device_run):
    plain, offloaded = make_device_run("plain"), make_device_run("offloaded", peak_device=50 << 20)
    return summary_module.summarise(settings.FULL, [plain], [offloaded], []), plain, offloaded


def test_table_of_a_device(device_summary):
    summary, _, _ = device_summary
    text = report.render_table(summary)
    assert list(summary["tiers"]) == ["device", "dram", "pmem", "swap"], "fastest first"
    for part in ("peak device memory", "50 % less", "Frostline emulated device (emulated)",
                 "emulated links: 250 MB/s", "copies beside kernels", "final weights, XXH3"):
        assert part in text
    assert "torch" not in text and "None" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_page_of_a_device(device_summary):
    summary, plain, offloaded = device_summary
    series = {
        "timeline": offloaded["timeline"],
        "plain_marks": plain["marks"],
        "offloaded_marks": offloaded["marks"],
        "plain_resident": None,
        "offloaded_resident": None,
        "operations": offloaded["operations"],
    }
    page = report.render_page(summary, series)
    assert 'id="lanes"' in page and 'id="panel-device"' in page
    assert "Where the activations and states were" in page
    assert "Memory of the process" not in page and "Forward" not in page
    assert "The GPU is emulated" in page
    assert "None" not in page and "nan" not in page
