"""What the offload asks of PyTorch's CUDA side. Nothing is remembered: which stream is current
changes between forward and backward, and from thread to thread.
"""

import torch


class Cuda:
    """The streams and the memory of PyTorch's GPUs."""

    device_types = ("cuda",) if torch.version.cuda else ()

    def stream(self, device):
        """The handle of the stream on which this thread queues work for the device now."""
        return torch.cuda.current_stream(device).cuda_stream

    def allocate(self, size_bytes, device):
        """Bytes of PyTorch's own, for the stream that is current now."""
        return torch.empty(size_bytes, dtype=torch.uint8, device=device)

    def used_by(self, tensor, device):
        """The stream that is current now has used the tensor's memory: not to be reused before."""
        tensor.record_stream(torch.cuda.current_stream(device))


def is_initialised():
    """Whether this process uses a GPU already; asking does not make it do so."""
    return bool(torch.version.cuda) and torch.cuda.is_initialized()


def current_gpu():
    """The GPU that this thread uses, as the CUDA driver counts them."""
    return torch.cuda.current_device()
