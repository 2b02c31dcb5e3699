"""Line and area charts as SVG text. They need no script and no style but the classes of page.css.

Data is thinned before it is drawn, in a way that keeps every peak: a chart must never show a tier
lower than it was.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from html import escape

from settings import GIB, MIB, as_size

COLUMNS = 460  # samples of a chart as wide as the page; more cannot be told apart
TICK_STEPS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]


@dataclass(frozen=True)
class Frame:
    """The drawing area, in SVG units, and the ranges of data that fill it: seconds and bytes."""

    width: float
    height: float
    end_s: float
    top_bytes: float
    left: float = 64
    right: float = 14
    above: float = 26
    below: float = 30

    def x(self, seconds: float) -> float:
        inside = self.width - self.left - self.right
        return self.left + inside * min(max(seconds / self.end_s, 0.0), 1.0)

    def y(self, size_bytes: float) -> float:
        inside = self.height - self.above - self.below
        return self.above + inside * (1 - min(size_bytes / self.top_bytes, 1.0))


def thin(
    times: list[float], series: list[list[int]], end_s: float, columns: int = COLUMNS
) -> tuple[list[float], list[list[int]]]:
    """One sample per column of [0, end_s]: the one whose sum over all series is highest there.

    `series` are values that hold from their time until the next one, so what was held when a
    column begins counts in it too.
    """
    width = end_s / columns
    thinned_times = [width * column for column in range(columns)]
    if not times:
        return thinned_times, [[0] * columns for _ in series]
    totals = [sum(values) for values in zip(*series)]
    picked = []
    for start in thinned_times:
        before = max(bisect.bisect_right(times, start) - 1, 0)
        after = max(bisect.bisect_left(times, start + width), before + 1)
        picked.append(max(range(before, after), key=totals.__getitem__))
    return thinned_times, [[values[index] for index in picked] for values in series]


def ticks(top_bytes: float, most: int = 5) -> list[int]:
    """Round binary sizes from 0 up to `top_bytes`, at most `most` of them above 0."""
    for step in TICK_STEPS:
        if top_bytes / (step * MIB) <= most:
            return [tick * step * MIB for tick in range(int(top_bytes / (step * MIB)) + 1)]
    return [0]


def tick_label(size_bytes: int) -> str:
    if size_bytes == 0:
        return "0"
    if size_bytes < GIB:
        return f"{size_bytes // MIB} MiB"
    return f"{size_bytes / GIB:.2f}".rstrip("0").rstrip(".") + " GiB"


def time_ticks(end_s: float) -> list[float]:
    """Round seconds from 0 to `end_s`, at most ten of them."""
    step = next((s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120) if end_s / s <= 10), 600)
    return [tick * step for tick in range(int(end_s / step) + 1)]


def tick_text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def path(points: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def draw_grid(frame: Frame, with_time: bool = True, most: int = 5) -> str:
    """Horizontal lines with sizes at the left, and seconds below."""
    parts = []
    left, right = frame.left, frame.width - frame.right
    for size in ticks(frame.top_bytes, most):
        y = frame.y(size)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(tick_text(left - 8, y + 4, tick_label(size), "end"))
    if with_time:
        bottom = frame.height - frame.below + 18
        for seconds in time_ticks(frame.end_s):
            parts.append(tick_text(frame.x(seconds), bottom, f"{seconds:g} s", "middle"))
    return "".join(parts)


def draw_steps(frame: Frame, starts: list[float], named: bool = True) -> str:
    """A vertical line at the start of each training step; the first one warms up."""
    parts = []
    top, bottom = frame.above - 8, frame.height - frame.below
    for index, start in enumerate(starts):
        x = frame.x(start)
        parts.append(f'<line class="step" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')
        if named:
            name = f"step {index + 1}" + (" (warm-up)" if index == 0 else "")
            parts.append(tick_text(x + 5, frame.above - 10, name, "start"))
    return "".join(parts)


def draw_level(frame: Frame, size_bytes: int, text: str, css: str = "") -> str:
    """A dashed horizontal line with its name above its right end."""
    y, right = frame.y(size_bytes), frame.width - frame.right
    return (
        f'<line class="level {css}" x1="{frame.left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="level-name" x="{right - 4}" y="{y - 5:.1f}" text-anchor="end">'
        f"{escape(text)}</text>"
    )


def draw_area(frame: Frame, times: list[float], low: list[int], high: list[int], css: str) -> str:
    """The area between two series, and a line along its upper edge."""
    upper = [(frame.x(t), frame.y(v)) for t, v in zip(times, high)]
    lower = [(frame.x(t), frame.y(v)) for t, v in zip(times, low)]
    outline = path(upper + lower[::-1]) + "Z"
    return f'<path class="area {css}" d="{outline}"/><path class="edge {css}" d="{path(upper)}"/>'


def draw_line(frame: Frame, times: list[float], values: list[int], css: str) -> str:
    points = [(frame.x(t), frame.y(v)) for t, v in zip(times, values)]
    return f'<path class="line {css}" d="{path(points)}"/>'


def svg(frame: Frame, name: str, title: str, description: str, parts: list[str]) -> str:
    """A figure that reads itself out: `description` says in words what the picture shows."""
    return (
        f'<svg id="{name}" viewBox="0 0 {frame.width:g} {frame.height:g}" role="img" '
        f'aria-labelledby="{name}-title {name}-text">'
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-text">{escape(description)}</desc>{"".join(parts)}</svg>'
    )


def tier_timeline(
    times: list[float],
    tiers: dict[str, list[int]],
    steps: list[float],
    end_s: float,
    kept: tuple[str, int],
    budget: tuple[str, int],
) -> str:
    """The stacked timeline: bytes of the tiers on top of each other, the fastest at the bottom,
    which is why its `budget`, and no other, can be a line here. `kept` is what a plain run keeps.
    Both have a name and bytes."""
    total = [sum(values) for values in zip(*tiers.values())]
    frame = Frame(900, 330, end_s, 1.12 * max(max(total), kept[1], 1))
    parts = [draw_grid(frame), draw_steps(frame, steps)]
    low = [0] * len(times)
    for name, values in tiers.items():
        high = [below + own for below, own in zip(low, values)]
        parts.append(draw_area(frame, times, low, high, name))
        low = high
    for name, size_bytes in (budget, kept):
        parts.append(draw_level(frame, size_bytes, f"{name} {as_size(size_bytes)}"))
    text = "Bytes held by each tier while training. " + "; ".join(
        f"{name} at most {as_size(max(values))}" for name, values in tiers.items()
    )
    return svg(frame, "timeline", "Bytes by tier against time", text, parts)


def tier_panel(
    name: str, times: list[float], values: list[int], steps: list[float], end_s: float, budget: int
) -> str:
    """One tier on its own scale, below the line of its budget."""
    top_bytes = 1.2 * max(budget, max(values), 1)
    frame = Frame(300, 150, end_s, top_bytes, left=58, right=8, above=14, below=10)
    parts = [
        draw_grid(frame, with_time=False, most=4),
        draw_steps(frame, steps, named=False),
        draw_area(frame, times, [0] * len(times), values, name),
        draw_level(frame, budget, f"budget {as_size(budget)}"),
    ]
    text = f"{name} held at most {as_size(max(values))}; its budget is {as_size(budget)}."
    return svg(frame, f"panel-{name}", f"{name} against its budget", text, parts)


def resident_chart(
    times: list[float], runs: dict[str, list[int]], end_s: float, peaks: dict[str, int]
) -> str:
    """Resident memory of a plain and an offloaded process, one line each, started together, and a
    dashed line at the peak that the kernel recorded, which no sample can miss."""
    highest = max(max(values) for values in [*runs.values(), list(peaks.values())])
    frame = Frame(900, 300, end_s, 1.15 * highest)
    parts = [draw_grid(frame)]
    for name, values in runs.items():
        parts.append(draw_line(frame, times, values, name))
        parts.append(draw_level(frame, peaks[name], f"{name}: {as_size(peaks[name])}", name))
    text = "Resident memory of the process over time. " + "; ".join(
        f"{name} at most {as_size(peaks[name])}" for name in runs
    )
    return svg(frame, "resident", "Resident memory against time", text, parts)
