// What a program names when it has device memory copied: which GPU the memory is on, whether all of
// it is there, and whether the stream is that GPU's. Whatever is wrong with that is said before
// anything is started, because a driver says it later, of the whole context, and for good.
#pragma once

#include "tiers/cuda_context.h"
#include "tiers/result.h"

#include <cstdint>

namespace frostline {

/// The GPU on which the memory lies. Errors: invalid_argument (no device memory), the driver's.
Result<int> gpu_of_memory(const CudaDriver& driver, CUdeviceptr memory);

/// Whether memory of the context's GPU is allocated from `memory` on for `size_bytes`; it may be
/// mapped in several pieces that touch. Errors: invalid_argument, naming the range that is
/// allocated; the driver's.
Result<void> check_range(const CudaContext& context, CUdeviceptr memory, std::uint64_t size_bytes);

/// Whether the stream is one of the context's GPU; the default streams are those of every GPU.
/// Errors: invalid_argument, naming both GPUs, or that there is no such stream; the driver's.
Result<void> check_stream(const CudaContext& context, CUstream stream);

/// Refuses a stream that captures a graph, which must be of the context's GPU. Errors: unsupported,
/// the driver's.
Result<void> refuse_capture(const CudaContext& context, CUstream stream);

}  // namespace frostline
