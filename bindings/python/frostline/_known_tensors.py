"""Recognises the parameters and buffers of modules, which live on anyway and are not worth moving.

Autograd saves a detached alias of a parameter, so it is told by its storage. Modules are seen when
they run, through a global hook, before their operations save anything.
"""

import threading

import torch

from ._storage import WeakStorage, key_of, storage_of


class KnownTensors:
    """A set of storages. Thread-safe."""

    def __init__(self):
        self._storages = {}  # key -> WeakStorage, which keeps the key from being reused
        self._watching = 0
        self._hook = None
        self._lock = threading.Lock()

    def watch(self):
        """Notes what running modules own, until as many calls of unwatch()."""
        with self._lock:
            self._watching += 1
            if self._watching == 1:
                self._hook = torch.nn.modules.module.register_module_forward_pre_hook(self._note)

    def unwatch(self):
        with self._lock:
            self._watching -= 1
            if self._watching == 0:
                self._hook.remove()
                self._forget_dead()

    def contains(self, tensor):
        """Whether the tensor shares its storage with a known one."""
        return key_of(storage_of(tensor)) in self._storages

    def _note(self, module, _inputs):
        for tensors in (module._parameters, module._buffers):
            for tensor in tensors.values():
                if tensor is None:
                    continue
                try:
                    storage = storage_of(tensor)
                except (RuntimeError, NotImplementedError, ValueError):
                    # No storage of its own, or none yet (lazy modules): such tensors pass through.
                    continue
                if key_of(storage) not in self._storages:
                    weak = WeakStorage(storage)
                    self._storages[weak.key] = weak

    def _forget_dead(self):
        # A copy, because modules that run in other threads are noted without the lock.
        for key, weak in list(self._storages.items()):
            if weak.expired():
                self._storages.pop(key, None)
