"""How far copies hid behind kernels, from what a device says ran on it: figures and lanes.

Operations are a dict by kind ("kernel", "to_device", "from_device", "other") of three lists of
equal length, "start_s", "end_s" (monotonic seconds) and "bytes".
"""

from __future__ import annotations

from html import escape

from charts import Frame, svg, tick_text, time_ticks

LANES = {
    "kernel": "kernels",
    "to_device": "copies in",
    "from_device": "copies out",
    "both": "copies beside kernels",
}
LANE_HEIGHT = 26
Spans = list[tuple[float, float]]


def merged(spans: Spans, gap_s: float = 0.0) -> Spans:
    """The union of spans as disjoint ones in order; gaps of at most `gap_s` between them close."""
    union: Spans = []
    for start, end in sorted(spans):
        if union and start <= union[-1][1] + gap_s:
            union[-1] = union[-1][0], max(union[-1][1], end)
        else:
            union.append((start, end))
    return union


def common(left: Spans, right: Spans) -> Spans:
    """Where both are; each is disjoint and in order, and so is the result."""
    found: Spans = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            found.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return found


def length(spans: Spans) -> float:
    return sum(end - start for start, end in spans)


def lanes(operations: dict, start_s: float, end_s: float) -> dict[str, Spans]:
    """By lane, when something of that kind ran between two times; "both" is any copy beside any
    kernel."""
    busy = {}
    for kind in ("kernel", "to_device", "from_device"):
        columns = operations.get(kind, {"start_s": [], "end_s": []})
        spans = merged(list(zip(columns["start_s"], columns["end_s"])))
        busy[kind] = common(spans, [(start_s, end_s)])
    copies = merged(busy["to_device"] + busy["from_device"])
    return {**busy, "both": common(copies, busy["kernel"])}


def overlap_of(run: dict) -> dict | None:
    """Seconds of one step, on average over the timed ones: of kernels, of copies, of both at once;
    None where the device does not tell."""
    if run["operations"] is None:
        return None
    marks = run["marks"][1:]
    found = lanes(run["operations"], marks[0][0], marks[-1][-1])
    copies = length(merged(found["to_device"] + found["from_device"]))
    return {
        "kernels_s": length(found["kernel"]) / len(marks),
        "copies_s": copies / len(marks),
        "both_s": length(found["both"]) / len(marks),
    }


def hidden_share(overlap: dict) -> float:
    return overlap["both_s"] / overlap["copies_s"] if overlap["copies_s"] else 0.0


def describe_overlap(overlap: dict) -> tuple[str, str]:
    """For example ("63 %", "of 0.81 s of copies each step")."""
    share = f"{hidden_share(overlap):.0%}".replace("%", " %")
    return share, f"of {overlap['copies_s']:.2f} s of copies each step"


def lanes_chart(operations: dict, start_s: float, end_s: float) -> str:
    """One lane for each kind of work; gaps that are narrower than a line close."""
    height = 44 + LANE_HEIGHT * len(LANES)
    frame = Frame(900, height, end_s - start_s, 1, left=150, above=8)
    parts = []
    for row, (name, spans) in enumerate(lanes(operations, start_s, end_s).items()):
        top = frame.above + row * LANE_HEIGHT
        parts.append(tick_text(frame.left - 10, top + 15, LANES[name], "end"))
        boxes = []
        for start, end in merged(spans, (end_s - start_s) / 1500):
            x, right = frame.x(start - start_s), frame.x(end - start_s)
            boxes.append(f"M{x:.1f} {top}H{max(right, x + 0.3):.1f}V{top + 20}H{x:.1f}Z")
        parts.append(f'<path class="lane {name}" d="{"".join(boxes)}"/>')
    for seconds in time_ticks(frame.end_s):
        parts.append(tick_text(frame.x(seconds), height - 12, f"{seconds:g} s", "middle"))
    text = "When kernels, copies to the device and copies from it ran in one step."
    return svg(frame, "lanes", "Kernels and copies against time", text, parts)


def render_overlap(summary: dict, series: dict) -> str:
    """The section of the page, empty where there is nothing to show."""
    if summary["overlap"] is None:
        return ""
    start_s, *_, end_s = series["offloaded_marks"][-1]
    chart = lanes_chart(series["operations"], start_s, end_s)
    share, of_what = describe_overlap(summary["overlap"])
    kernels = summary["overlap"]["kernels_s"]
    return (
        "<section><h2>Copies beside kernels "
        f'<span class="tag emulated">{escape(summary["tiers"]["device"]["label"])}</span></h2>'
        f"<p>The last step of the offloaded run. {share} {of_what} ran while a kernel did, too; "
        f"kernels took {kernels:.2f} s.</p>"
        f'<div class="chart">{chart}</div></section>'
    )
