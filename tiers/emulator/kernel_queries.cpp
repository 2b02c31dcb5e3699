// What programs ask of a kernel without launching it: parameters, attributes, occupancy.
#include <cuda.h>

#include <algorithm>

#include "tiers/emulator/device_limits.h"
#include "tiers/emulator/exported.h"
#include "tiers/emulator/kernel_objects.h"

namespace frostline::emulator {
namespace {

CUresult param_info(const void* handle, std::size_t index, std::size_t* offset, std::size_t* size,
                    const Call& call) {
    if (offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto found = resolve_kernel(handle, call.function);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const FrostlineEmulatedKernel& kernel = *found->kernel;
    if (index >= kernel.parameter_count) return CUDA_ERROR_INVALID_VALUE;
    *offset = kernel.parameter_offsets[index];
    if (size != nullptr) *size = kernel.parameter_sizes[index];
    return CUDA_SUCCESS;
}

CUresult attribute_of(const KernelHandle& kernel, CUfunction_attribute attribute, int& value) {
    constexpr int kComputeCapability = 90;
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
            value = kMaxThreadsPerBlock;
            break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
            value = kComputeCapability;
            break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            value = kernel.dynamic_shared_bytes != 0 ? kernel.dynamic_shared_bytes
                                                     : kDefaultSharedBytes;
            break;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            value = -1;
            break;
        default:
            if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            value = 0;
    }
    return CUDA_SUCCESS;
}

CUresult set_attribute(KernelHandle& kernel, CUfunction_attribute attribute, int value) {
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            if (value < 0 || value > kMaxSharedBytes) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            kernel.dynamic_shared_bytes = value;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

int blocks_per_multiprocessor(int block_size, std::size_t shared_bytes) {
    const int threads = (block_size + kWarp - 1) / kWarp * kWarp;
    if (threads > kMaxThreadsPerBlock || shared_bytes > static_cast<std::size_t>(kMaxSharedBytes))
        return 0;
    int blocks = std::min(kMaxBlocksPerMultiprocessor, kMaxThreadsPerMultiprocessor / threads);
    if (shared_bytes > 0) {
        blocks = std::min(blocks, kSharedBytesPerMultiprocessor / static_cast<int>(shared_bytes));
    }
    return blocks;
}

CUresult occupancy(int* blocks, CUfunction handle, int block_size, std::size_t shared_bytes,
                   const Call& call) {
    if (blocks == nullptr || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (resolve_kernel(handle, call.function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *blocks = blocks_per_multiprocessor(block_size, shared_bytes);
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace frostline::emulator

using namespace frostline::emulator;

FROSTLINE_EXPORTED CUresult CUDAAPI cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const auto kernel = resolve_kernel(hfunc, call.function);
        // A kernel of a library belongs to no module.
        if (kernel == nullptr || kernel->module == 0) return CUDA_ERROR_INVALID_HANDLE;
        *hmod = handle_of<CUmodule>(kernel->module);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction hfunc) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const auto kernel = resolve_kernel(hfunc, call.function);
        if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        *name = kernel->kernel->name;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuFuncGetParamInfo(CUfunction hfunc, size_t index,
                                                       size_t* offset, size_t* size) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) { return param_info(hfunc, index, offset, size, call); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuKernelGetParamInfo(CUkernel kernel, size_t index,
                                                         size_t* offset, size_t* size) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) { return param_info(kernel, index, offset, size, call); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuFuncGetAttribute(int* value, CUfunction_attribute attribute,
                                                       CUfunction hfunc) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const auto kernel = resolve_kernel(hfunc, call.function);
        if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        return attribute_of(*kernel, attribute, *value);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuKernelGetAttribute(int* value, CUfunction_attribute attribute,
                                                         CUkernel handle, CUdevice) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const auto kernel = resolve_kernel(handle, call.function);
        if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        return attribute_of(*kernel, attribute, *value);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuFuncSetAttribute(CUfunction hfunc,
                                                       CUfunction_attribute attribute, int value) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        const auto kernel = resolve_kernel(hfunc, call.function);
        if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        return set_attribute(*kernel, attribute, value);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attribute, int value,
                                                         CUkernel handle, CUdevice) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        const auto kernel = resolve_kernel(handle, call.function);
        if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        return set_attribute(*kernel, attribute, value);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
        if (resolve_kernel(hfunc, call.function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(
    int* blocks, CUfunction func, int block_size, size_t shared_bytes) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call(
        [&](Call& call) { return occupancy(blocks, func, block_size, shared_bytes, call); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, CUfunction func, int block_size, size_t shared_bytes, unsigned flags) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) return CUDA_ERROR_INVALID_VALUE;
        return occupancy(blocks, func, block_size, shared_bytes, call);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(
    int* min_grid_size, int* block_size, CUfunction func, CUoccupancyB2DSize shared_bytes_of,
    size_t shared_bytes, int block_size_limit) {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (min_grid_size == nullptr || block_size == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (resolve_kernel(func, call.function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        const int most = kMaxThreadsPerBlock;
        const int size = block_size_limit > 0 ? std::min(block_size_limit, most) : most;
        // The caller's function may do anything, so not with the mutex held.
        if (shared_bytes_of != nullptr) {
            call.lock.unlock();
            shared_bytes = shared_bytes_of(size);
            call.lock.lock();
        }
        *block_size = size;
        *min_grid_size = kMultiprocessors * blocks_per_multiprocessor(size, shared_bytes);
        return CUDA_SUCCESS;
    });
}
