// A question to the driver each.
#include "bindings/device_arguments.h"

#include "tiers/cuda_stream.h"

#include <array>

namespace frostline {

Result<int> gpu_of_memory(const CudaDriver& driver, CUdeviceptr memory) {
    unsigned type = 0;
    int ordinal = 0;
    std::array<CUpointer_attribute, 2> asked{CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                             CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    std::array<void*, 2> answers{&type, &ordinal};
    FROSTLINE_TRY_VOID(driver.check(
        "cuPointerGetAttributes",
        driver.cuPointerGetAttributes(asked.size(), asked.data(), answers.data(), memory)));
    if (type != CU_MEMORYTYPE_DEVICE) {
        return Error(Errc::invalid_argument, 0,
                     "{:#x} is no device memory; give host memory to put() and get()", memory);
    }
    return ordinal;
}

Result<void> check_range(const CudaContext& context, CUdeviceptr memory, std::uint64_t size_bytes) {
    const CudaDriver& driver = context.driver();
    CUdeviceptr first = 0;
    std::uint64_t reached_bytes = 0;
    // A tensor may lie in several mappings, of which the driver tells one at a time.
    while (reached_bytes < size_bytes) {
        CUdeviceptr start = 0;
        std::size_t length = 0;
        CUresult result = CUDA_SUCCESS;
        const CUdeviceptr at = memory + reached_bytes;
        FROSTLINE_TRY_VOID(context.run([&]() -> Result<void> {
            result = driver.cuMemGetAddressRange(&start, &length, at);
            return ok();
        }));
        const bool none = result == CUDA_ERROR_NOT_FOUND || result == CUDA_ERROR_INVALID_VALUE;
        if (!none) FROSTLINE_TRY_VOID(driver.check("cuMemGetAddressRange", result));
        // The first range is the one that the caller meant; a gap ends it.
        if (none && reached_bytes == 0) {
            return Error(Errc::invalid_argument, 0,
                         "{:#x} is in no allocation of GPU {}: it was freed, or never allocated",
                         memory, context.device());
        }
        if (none) {
            return Error(Errc::invalid_argument, 0,
                         "{} bytes from {:#x} on reach beyond their allocation, which is {:#x} to "
                         "{:#x}: at most {} bytes can be copied there",
                         size_bytes, memory, first, memory + reached_bytes, reached_bytes);
        }
        if (reached_bytes == 0) first = start;
        reached_bytes = start + length - memory;
    }
    return ok();
}

Result<void> check_stream(const CudaContext& context, CUstream stream) {
    FROSTLINE_TRY(const int owner, gpu_of_stream(context, stream));
    if (owner == context.device()) return ok();
    return Error(Errc::invalid_argument, 0,
                 "the stream is of GPU {}, and the memory of GPU {}: give a stream of GPU {}",
                 owner, context.device(), context.device());
}

Result<void> refuse_capture(const CudaContext& context, CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    FROSTLINE_TRY_VOID(context.run([&] {
        return context.driver().check("cuStreamIsCapturing",
                                      context.driver().cuStreamIsCapturing(stream, &status));
    }));
    if (status == CU_STREAM_CAPTURE_STATUS_NONE) return ok();
    return Error(Errc::unsupported, 0,
                 "the stream captures a graph, which would move nothing when it is replayed: "
                 "store and fetch tensors outside of the capture");
}

}  // namespace frostline
