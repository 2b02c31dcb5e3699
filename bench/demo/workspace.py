"""The directory in which a demo run keeps its tiers: found, checked, and always removed again."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Iterator

from settings import MIB, as_size

SPARE_BYTES = 64 * MIB  # a demo does not fill a file system to the last block
MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs"}
PREFIX = "frostline-demo-"
LOCK = "in-use"  # held as long as its demo lives; the mark of a directory that is a demo's


class WorkspaceError(Exception):
    """The working directory cannot be used; the text is one line for the user."""


@contextlib.contextmanager
def workspace(parent: Path | None, pmem_folder: Path | None = None) -> Iterator[Path]:
    """A fresh directory below `parent`; it is gone afterwards, whatever happens inside.

    What demos left there that were killed is removed first, with their pmem files in `pmem_folder`.

    Without `parent` it lies in $TMPDIR, or else in the current directory: /tmp is often held in
    memory, and a swap tier in memory would save none. SIGTERM ends the run like Ctrl-C does.
    """
    parent = parent or Path(os.environ.get("TMPDIR") or os.getcwd())
    created = not parent.exists()
    try:
        parent.mkdir(exist_ok=True)
        remove_left_behind(parent, pmem_folder)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        lock = _mark_in_use(folder)
    except OSError as error:
        raise WorkspaceError(f"cannot use {parent} to work in: {error.strerror}") from None
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield folder
    finally:
        # A second Ctrl-C must not leave gigabytes behind.
        at_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, before)
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
        if created:
            with contextlib.suppress(OSError):
                parent.rmdir()
        signal.signal(signal.SIGINT, at_interrupt)


def _mark_in_use(folder: Path) -> int:
    """Makes the lock and holds it; its descriptor. It has its name only once it is held, so that no
    other demo takes this one for dead."""
    making = folder / f"{LOCK}.new"
    lock = os.open(making, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    making.rename(folder / LOCK)
    return lock


def remove_left_behind(parent: Path, pmem_folder: Path | None) -> None:
    """Removes the directories below `parent` of demos that ended without doing so, such as by
    kill -9. A directory without a demo's lock is somebody's own, whatever its name."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its demo lives
                if pmem_folder is not None:
                    (pmem_folder / f"{folder.name}.pmem").unlink(missing_ok=True)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def check_space(folder: Path, needed_bytes: int) -> None:
    """Raises when the file system of `folder` has not this much room."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise WorkspaceError(
            f"{folder} has {as_size(free_bytes)} free and {as_size(needed_bytes)} are needed; "
            "give another place with --workdir or --pmem-dir"
        )


def check_tier_space(folder: Path, pmem_folder: Path | None, budgets: dict[str, int]) -> None:
    """Raises when there is no room for a swap tier in `folder` and a pmem tier in `pmem_folder`,
    or in `folder`, too, without one."""
    if pmem_folder is None:
        check_space(folder.parent, budgets["pmem"] + budgets["swap"] + SPARE_BYTES)
    else:
        check_space(folder.parent, budgets["swap"] + SPARE_BYTES)
        check_space(pmem_folder, budgets["pmem"])


def memory_notes(folder: Path) -> list[str]:
    """What a reader must know of the place where the tiers lie."""
    if file_system_type(folder) in MEMORY_FILE_SYSTEMS:
        return ["The working directory is held in memory: the swap tier saves none."]
    return []


def file_system_type(folder: Path) -> str:
    """Name of the type of file system that `folder` lies on, such as ext4; empty if unknown."""
    best, kind = "", ""
    place = str(folder.resolve())
    with contextlib.suppress(OSError), open("/proc/self/mounts", encoding="utf-8") as mounts:
        for line in mounts:
            _, mount_point, mount_type, *_ = line.split()
            inside = place == mount_point or place.startswith(mount_point.rstrip("/") + "/")
            if inside and len(mount_point) >= len(best):
                best, kind = mount_point, mount_type
    return kind
