// The driver functions that Frostline, its programs and tests call: for each its name, the CUDA
// version whose form of it this code was written for, and what it is needed for. The versions are
// those by which the toolkit's cudaTypedefs.h names the forms; a driver keeps every form that it
// ever had.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace frostline {

/// What a function is needed for. A driver that lacks one lacks that feature, not the others.
enum class CudaFeature : std::uint8_t {
    devices,            ///< counting and naming them; every driver has it
    contexts,           ///< making a device current, whatever the thread captures
    host_registration,  ///< pinning host memory
    virtual_memory,     ///< addresses apart from what backs them
    streams,            ///< asynchronous copies, streams and events
    kernels,            ///< modules and launches
};

// clang-format off
#define FROSTLINE_CUDA_FUNCTIONS(X)                                  \
    X(cuInit, 2000, devices)                                         \
    X(cuDriverGetVersion, 2020, devices)                             \
    X(cuDeviceGetCount, 2000, devices)                               \
    X(cuDeviceGet, 2000, devices)                                    \
    X(cuDeviceGetName, 2000, devices)                                \
    X(cuDeviceTotalMem, 3020, devices)                               \
    X(cuGetErrorName, 6000, devices)                                \
    X(cuDeviceGetAttribute, 2000, streams)                          \
    X(cuDeviceGetPCIBusId, 4010, streams)                           \
    X(cuDevicePrimaryCtxRetain, 7000, contexts)                      \
    X(cuDevicePrimaryCtxRelease, 11000, contexts)                    \
    X(cuCtxPushCurrent, 4000, contexts)                              \
    X(cuCtxPopCurrent, 4000, contexts)                               \
    X(cuCtxGetCurrent, 4000, streams)                               \
    X(cuCtxGetDevice, 2000, streams)                                 \
    X(cuCtxSynchronize, 2000, contexts)                              \
    X(cuThreadExchangeStreamCaptureMode, 10010, contexts)            \
    X(cuMemHostRegister, 6050, host_registration)                    \
    X(cuMemHostUnregister, 4000, host_registration)                  \
    X(cuMemHostAlloc, 2020, streams)                       \
    X(cuMemFreeHost, 2000, streams)                        \
    X(cuMemGetAllocationGranularity, 10020, virtual_memory)          \
    X(cuMemAddressReserve, 10020, virtual_memory)                    \
    X(cuMemAddressFree, 10020, virtual_memory)                       \
    X(cuMemCreate, 10020, virtual_memory)                            \
    X(cuMemRelease, 10020, virtual_memory)                           \
    X(cuMemMap, 10020, virtual_memory)                               \
    X(cuMemUnmap, 10020, virtual_memory)                             \
    X(cuMemSetAccess, 10020, virtual_memory)                         \
    X(cuMemGetInfo, 3020, streams)                                   \
    X(cuMemAlloc, 3020, streams)                                     \
    X(cuMemFree, 3020, streams)                                      \
    X(cuPointerGetAttributes, 7000, streams)                         \
    X(cuMemGetAddressRange, 3020, streams)                           \
    X(cuDeviceCanAccessPeer, 4000, streams)                          \
    X(cuMemcpyHtoDAsync, 3020, streams)                              \
    X(cuMemcpyDtoHAsync, 3020, streams)                              \
    X(cuMemcpyDtoDAsync, 3020, streams)                              \
    X(cuMemsetD8Async, 3020, streams)                                \
    X(cuStreamCreate, 2000, streams)                                 \
    X(cuStreamDestroy, 4000, streams)                                \
    X(cuStreamSynchronize, 2000, streams)                            \
    X(cuStreamWaitEvent, 3020, streams)                              \
    X(cuStreamIsCapturing, 10000, streams)                           \
    X(cuStreamGetCtx, 9020, streams)                                 \
    X(cuEventCreate, 2000, streams)                                  \
    X(cuEventDestroy, 4000, streams)                                 \
    X(cuEventRecord, 2000, streams)                                  \
    X(cuEventQuery, 2000, streams)                                   \
    X(cuEventSynchronize, 2000, streams)                             \
    X(cuModuleLoad, 2000, kernels)                                   \
    X(cuModuleUnload, 2000, kernels)                                 \
    X(cuModuleGetFunction, 2000, kernels)                            \
    X(cuLaunchKernel, 4000, kernels)
// clang-format on

/// The functions by name; one that the driver lacks is nullptr. cuda.h's macros give both the
/// members and the calls their suffixes.
struct CudaFunctions {
#define FROSTLINE_CUDA_MEMBER(function, version, feature) decltype(&::function) function = nullptr;
    FROSTLINE_CUDA_FUNCTIONS(FROSTLINE_CUDA_MEMBER)
#undef FROSTLINE_CUDA_MEMBER
};

}  // namespace frostline
