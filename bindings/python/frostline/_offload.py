"""Saved-tensor offload: what autograd saves for the backward pass lives in Frostline's tiers.

Invariants:
  * One storage, one copy: tensors that share a storage share an entry, whatever their geometry.
  * The lifetime of an entry is that of the handles that autograd holds. Order of use is only a
    hint; unpacking twice, out of order, never, or on another thread is all the same.
  * What cannot be moved with profit, or safely, is passed through untouched.
"""

import atexit
import collections
import os
import threading
import warnings
import weakref

from . import _core
from ._cuda import Cuda, current_gpu, is_initialised
from ._device_entry import DeviceEntry, SourceWindow
from ._entry import Entry, Saved, is_movable
from ._known_tensors import KnownTensors

_LEAST_TRIMMED_BYTES = 32 << 20


def _places(swap):
    """One path, or several as PATH has them."""
    if swap is None or isinstance(swap, (str, bytes, os.PathLike)):
        return None if swap is None else os.fsencode(swap)
    try:
        return b":".join(os.fsencode(place) for place in swap)
    except TypeError:
        raise TypeError(f"swap: expected a path or a list of paths, not {swap!r}") from None


def _size(name, value):
    try:
        return _core.parse_byte_size(str(value))
    except _core.InvalidArgument as error:
        error.args = (f"{name}: {error}",)
        raise


class offload:  # noqa: N801 (reads like a context manager of the standard library)
    """Context manager that offloads the tensors autograd saves while it is entered.

    Args:
        dram: budget of host memory for saved tensors, such as ``"256MiB"`` or a number of bytes.
            Hard: what does not fit waits for room, or goes to a lower tier.
        pmem: path of a file for the pmem tier; on a DAX file system this is real persistent memory.
        swap: an existing directory for the swap file, which has no name and leaves nothing behind;
            or several, in a list or separated by colons, which are used at once.
        min_bytes: smaller storages are left alone.
        pmem_bytes: size of the pmem file; default: the whole file if it exists, else 1 GiB.
        swap_bytes: most that the swap file may grow to; default: nine tenths of what is free.
        swap_devices: whether ``swap`` may name a block device, which is overwritten.
        numa: where DRAM's pages lie: ``"bind:0,1"``, ``"preferred:0"`` or ``"interleave:0,1"``.
        far_node: a NUMA node whose memory is a tier of its own, such as CXL memory.
        far_bytes: the budget of that tier.
        gpu: the GPU that DRAM is pinned for, as CUDA counts them; default: the current one.
        device_window: of each GPU, the most bytes that stay allocated until their copies have been
            made; beyond that the GPU waits for the copies.
        pin: register DRAM with the GPU's driver, so that copies wait for nothing; default: if CUDA
            is in use already when this is opened.
        verify: checksum everything that leaves DRAM and compare it when it returns.
        calibrate: know the tiers' speeds: from the user's cache, or measured now.

    May be entered any number of times, nested or in several threads; opening it once and entering
    it for each step keeps the tiers. Parameters and buffers of modules that run while it is entered
    are recognised and never moved. Tensors of the CPU and of NVIDIA GPUs; others pass through. What
    comes back to a GPU is allocated by PyTorch, on the stream that is current then.

    Raises:
        frostline.InvalidArgument: an option that cannot be used.
        frostline.Error: a tier that cannot be opened; the message says which and why.
    """

    def __init__(self, dram, pmem=None, swap=None, min_bytes="1MiB", *, pmem_bytes=None,
                 swap_bytes=None, swap_devices=False, numa=None, far_node=None, far_bytes=None,
                 gpu=None, device_window="256MiB", pin=None, verify=False, calibrate=True):
        pin = is_initialised() if pin is None else pin
        if gpu is None and pin and is_initialised():
            gpu = current_gpu()
        options = {"dram": None if dram is None else str(dram),
                   "pmem": None if pmem is None else os.fsencode(pmem),
                   "pmem_bytes": None if pmem_bytes is None else str(pmem_bytes),
                   "swap": _places(swap),
                   "swap_bytes": None if swap_bytes is None else str(swap_bytes),
                   "swap_devices": str(swap_devices).lower(),
                   "numa": numa,
                   "far_node": None if far_node is None else str(far_node),
                   "far_bytes": None if far_bytes is None else str(far_bytes),
                   "gpu": None if gpu is None else str(gpu),
                   "pin": str(pin).lower(),
                   "verify": str(verify).lower(),
                   "calibrate": str(calibrate).lower()}
        self._min_bytes = max(1, _size("min_bytes", min_bytes))
        window_bytes = _size("device_window", device_window)
        self._manager = _core.Manager({k: v for k, v in options.items() if v is not None})
        # As much freed memory as the budget may stay resident, beside it.
        budget = self._manager.stats()["tiers"]["dram"]["budget_bytes"]
        self._freed_memory = _core.FreedMemory(max(budget, _LEAST_TRIMMED_BYTES))
        self._cuda = Cuda()
        self._window = SourceWindow(self._manager, self._cuda, window_bytes)
        self._process = os.getpid()
        self._known = KnownTensors()
        self._entries = weakref.WeakValueDictionary()  # storage key -> Entry
        # Weak references to entries whose storage the forward pass still uses.
        self._held = collections.deque()
        self._entered = threading.local()
        self._passed_through = 0
        self._warned = set()
        _open_managers.add(self._manager)

    # ---- the context ----

    def __enter__(self):
        import torch

        hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        hooks.__enter__()
        self._known.watch()
        if not hasattr(self._entered, "hooks"):
            self._entered.hooks = []
        self._entered.hooks.append(hooks)
        return self

    def __exit__(self, *exception):
        self._entered.hooks.pop().__exit__(*exception)
        self._known.unwatch()
        self._settle_idle()

    def step(self):
        """Marks the end of a training step."""
        self._settle_idle()
        self._manager.step()

    def close(self):
        """Ends all moves and takes no new data. What is stored can still be read."""
        self._manager.close()

    # ---- figures ----

    def stats(self):
        """Counters since opening, as a dict.

        ``tiers`` maps a tier's name to its label (real or emulated), budget, used, peak, moved in
        and moved out (bytes) and whether it is open. ``saved`` and ``saved_bytes`` count storages
        taken, ``passed_through`` tensors left alone, ``hits`` and ``stalls`` uses (and stores) that
        did not, or did, have to wait; ``stall_s`` is how long.
        """
        return {**self._manager.stats(), "passed_through": self._passed_through}

    def timeline(self):
        """Bytes held by each tier over time: ``time_s`` (time.monotonic) and a list per tier."""
        return self._manager.timeline()

    def trace(self):
        """The last complete step, or else the one in progress, as "frostline-trace 1" text."""
        return self._manager.trace()

    def write_trace(self, path):
        """Writes trace() to a file, mode 0600."""
        self._manager.write_trace(os.fsencode(path))

    # ---- the hooks ----

    def _pack(self, tensor):
        self._settle_idle()
        entry = self._entry_for(tensor)
        if entry is None:
            self._passed_through += 1
            return tensor
        return Saved(entry, tensor)

    def _unpack(self, packed):
        if not isinstance(packed, Saved):
            return packed
        self._settle_idle()
        return packed.tensor(self._manager)

    def _entry_for(self, tensor):
        on_gpu = tensor.device.type in self._cuda.device_types
        device_types = self._cuda.device_types if on_gpu else ("cpu",)
        if not is_movable(tensor, self._min_bytes, device_types) or self._known.contains(tensor):
            return None
        found = self._entries.get(Entry.key_of(tensor))
        if found is not None and found.holds(tensor):
            return found
        try:
            entry = (DeviceEntry(self._manager, tensor, self._cuda, self._window) if on_gpu
                     else Entry(self._manager, tensor, self._freed_memory))
        except _core.Error as error:
            # Busy: the memory is still lent for an older version of this storage, or was saved by
            # another thread at this moment.
            if error.code != "busy":
                self._warn(error)
            return None
        self._entries[entry.key] = entry
        if entry.held:
            self._held.append(weakref.ref(entry))
        return entry

    # A storage that only autograd's handles refer to any more is done with its forward use.
    def _settle_idle(self):
        if os.getpid() != self._process:
            return  # a forked child, and the tensors are its parent's
        self._window.sweep()
        for _ in range(len(self._held)):
            try:
                reference = self._held.popleft()
            except IndexError:
                return  # other threads settle, too
            entry = reference()
            settled = entry is None
            try:
                settled = settled or entry.settle_if_idle(self._manager)
            finally:
                if not settled:
                    self._held.append(reference)

    def _warn(self, error):
        if error.code not in self._warned:
            self._warned.add(error.code)
            warnings.warn(f"frostline: some tensors stay in the process's memory: {error}",
                          RuntimeWarning, stacklevel=4)


# Workers call back into the interpreter when they give a buffer up, so they are stopped before it
# ends.
_open_managers = weakref.WeakSet()


@atexit.register
def _close_all():
    for manager in list(_open_managers):
        try:
            manager.close()
        except _core.Error:
            pass  # of a parent process: it has no workers here
