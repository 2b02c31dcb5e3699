"""The text that both demos train on: the project's own, so that nothing has to be downloaded."""

from __future__ import annotations

from pathlib import Path

TEXT_PATTERNS = ("LICENSE", "README.md", "docs/**/*.md")


def collect_text(root: Path) -> bytes:
    """The project's own texts below `root`, one after the other, sorted by path."""
    found = [path for pattern in TEXT_PATTERNS for path in sorted(root.glob(pattern))]
    return b"\n".join(path.read_bytes() for path in found if path.is_file())
