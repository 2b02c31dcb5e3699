"""Tensors of a GPU, on stand-ins for them: there is no GPU here, and the emulator has no PyTorch.

What runs is everything but three calls of torch.cuda, see emulated_cuda.py. The emulator delays what
nothing orders, so that a missing wait shows as wrong bytes.
"""

import gc
import weakref

import pytest
import torch
from emulated_cuda import LIBRARY, EmulatedCuda

import frostline
from frostline._device_entry import DeviceEntry, SourceWindow
from frostline._entry import Saved

SIZE = 64 * 1024  # floats: 256 KiB
BYTES = SIZE * 4


class EmulatedOffload(frostline.offload):
    """PyTorch computes at once here, so what was fetched has to be there at once, too."""

    def use(self, cuda):
        self._cuda = cuda
        self._window = SourceWindow(self._manager, cuda, self._window._most_bytes)
        return self

    def _unpack(self, packed):
        tensor = super()._unpack(packed)
        self._cuda.synchronize()
        return tensor


@pytest.fixture(params=[1, 2, 3])
def cuda(request, monkeypatch):
    """An emulated GPU that was not misused when the test ends."""
    monkeypatch.setenv("FROSTLINE_CUDA_DRIVER", str(LIBRARY.resolve()))
    made = EmulatedCuda(f"memory=256MiB,latency_us=300,jitter_us=1000,leaks=0,seed={request.param}")
    yield made
    gc.collect()
    assert made.close() == []


@pytest.fixture
def open_offload(cuda):
    """Opens an offload on the emulated GPU; nothing may be left in it."""
    opened = []

    def build(**options):
        options = {"dram": "32MiB", "min_bytes": "16KiB", "pin": True, "calibrate": False, **options}
        opened.append(EmulatedOffload(**options).use(cuda))
        return opened[-1]

    yield build
    gc.collect()
    for offload in opened:
        offload.close()
        offload._window.sweep()
        assert offload._window.kept_bytes() == 0
        assert offload.stats()["tiers"]["dram"]["used_bytes"] <= 2 << 20, "but for pages kept"
    opened.clear()
    gc.collect()


def pack(offload, tensor):
    packed = offload._pack(tensor)
    assert isinstance(packed, Saved)
    return packed


def test_bytes_come_back_though_the_memory_is_used_again(open_offload, cuda):
    offload = open_offload(device_window=0)
    saved = []
    for _ in range(6):
        tensor = cuda.tensor(SIZE)
        right = tensor.clone()
        saved.append((right, pack(offload, tensor)))
        cuda.fill_later(tensor, 0xFF)  # as its next owner does, on the stream that it was freed on
    assert offload._window.kept_bytes() == 0
    for right, packed in reversed(saved):
        assert torch.equal(offload._unpack(packed), right)


def test_c26_the_live_stream_is_asked_for_every_time(open_offload, cuda):
    offload = open_offload(device_window=0)
    tensor = cuda.tensor(SIZE)
    cuda.fill_later(tensor, 0)
    packed = pack(offload, tensor)
    later = cuda.current = cuda.new_stream()
    fetched = offload._unpack(packed)
    assert cuda.allocated_for[-1] == (tensor.device, later)
    assert torch.equal(fetched, torch.zeros(SIZE)), "stored before what was queued had run"


def test_c29_unpacked_twice_it_is_fetched_once_for_a_stream(open_offload, cuda):
    offload = open_offload(device_window=0)
    tensor = cuda.tensor(SIZE)
    right = tensor.clone()
    packed = pack(offload, tensor)
    count = len(cuda.allocated_for)
    first, second = offload._unpack(packed), offload._unpack(packed)
    assert first.data_ptr() == second.data_ptr() and len(cuda.allocated_for) == count + 1
    cuda.current = cuda.new_stream()
    third = offload._unpack(packed)
    assert third.data_ptr() != first.data_ptr(), "nothing orders it after the other stream"
    del first, second
    assert torch.equal(third, right)


def test_c44_views_share_one_copy_and_keep_their_geometry(open_offload, cuda):
    offload = open_offload(device_window=0)
    tensor = cuda.tensor(256, 256)
    views = [tensor, tensor.t(), tensor[::2, 16:], tensor.view(torch.int32)]
    right = [view.clone() for view in views]
    packed = [pack(offload, view) for view in views]
    assert offload.stats()["saved"] == 1
    back = [offload._unpack(each) for each in packed]
    for view, one, expected in zip(views, back, right, strict=True):
        assert one.stride() == view.stride() and one.storage_offset() == view.storage_offset()
        assert torch.equal(one, expected)
    assert len({each.untyped_storage().data_ptr() for each in back}) == 1


def test_sources_are_kept_in_a_window(open_offload, cuda):
    offload = open_offload(device_window=2 * BYTES)
    packed = []
    for _ in range(5):
        packed.append(pack(offload, cuda.tensor(SIZE)))
        assert offload._window.kept_bytes() <= 2 * BYTES
    cuda.synchronize()
    manager = offload._manager
    while not all(manager.source_read(each._entry._stored.id) for each in packed):
        pass
    offload.step()
    assert offload._window.kept_bytes() == 0


def test_who_uses_it_while_it_is_kept_gets_the_very_memory(open_offload, cuda):
    offload = open_offload(device_window="64MiB")
    tensor = cuda.tensor(SIZE)
    cuda.synchronize()
    manager = offload._manager
    entry = DeviceEntry(manager, tensor, cuda, offload._window)
    if entry._source.tensor is not None:
        assert entry.storage(manager).data_ptr() == tensor.data_ptr()


def test_c31_a_source_outlives_its_entry_until_it_was_read(open_offload, cuda):
    offload = open_offload(device_window="64MiB")
    tensor = cuda.tensor(SIZE)
    entry = DeviceEntry(offload._manager, tensor, cuda, offload._window)
    source = entry._source
    gone = weakref.ref(entry)
    del entry
    assert gone() is None
    while source.tensor is not None:
        assert tensor.data_ptr() == source.tensor.data_ptr()
        offload._window.sweep()
    assert offload._manager.source_read(source.id)


def test_released_early_pytorch_is_told_of_the_stream(open_offload, cuda):
    offload = open_offload(device_window=0)
    tensors = [cuda.tensor(SIZE) for _ in range(4)]
    packed = [pack(offload, each) for each in tensors]
    # Each was either read already or is told of; a copy takes at least the latency.
    assert cuda.used and set(cuda.used) <= {each.data_ptr() for each in tensors}
    del packed


def test_modified_before_it_was_given_up(open_offload, cuda):
    offload = open_offload(device_window="64MiB")
    tensor = cuda.tensor(SIZE)
    packed = pack(offload, tensor)
    tensor.add_(1)
    if packed._entry._source.tensor is not None:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            offload._unpack(packed)


# What the operations give is ordinary memory here, which is no device's.
@pytest.mark.filterwarnings("ignore:.*no device memory.*:RuntimeWarning")
def test_c28_and_c27_a_training_step_and_one_without_backward(open_offload, cuda):
    offload = open_offload(device_window=BYTES)
    inputs = [cuda.tensor(256, 256) for _ in range(4)]
    weights = torch.nn.Parameter(torch.randn(256, 256))

    def loss():
        return sum((each @ weights).square().mean() for each in inputs)

    loss().backward()
    right, weights.grad = weights.grad, None
    with offload:
        loss()
        total = loss()
    total.backward()
    assert torch.equal(weights.grad, right)
    del total
    gc.collect()
    stats = offload.stats()
    assert stats["saved"] >= 4 and stats["dropped"] == stats["saved"]


def test_small_ones_pass_through(open_offload, cuda):
    offload = open_offload()
    small = cuda.tensor(16)
    assert offload._pack(small) is small
    assert offload.stats()["passed_through"] == 1


def test_the_window_is_an_option_that_is_checked():
    with pytest.raises(frostline.InvalidArgument, match="device_window"):
        frostline.offload(dram="1MiB", device_window="much")
