// The entry points of the per-thread default stream: each does what the function of its name does,
// with the thread's own stream in the place of the legacy one.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): cuda.h's own name
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "tiers/emulator/exported.h"

namespace frostline::emulator {
namespace {

/// While it lives, a null stream of this thread's calls means the thread's own.
class PerThreadDefaultStream {
   public:
    PerThreadDefaultStream() { null_stream_is_per_thread() = true; }
    PerThreadDefaultStream(const PerThreadDefaultStream&) = delete;
    PerThreadDefaultStream& operator=(const PerThreadDefaultStream&) = delete;
    ~PerThreadDefaultStream() { null_stream_is_per_thread() = false; }
};

}  // namespace
}  // namespace frostline::emulator

#define FROSTLINE_PER_THREAD(function, suffix, parameters, arguments)    \
    FROSTLINE_EXPORTED CUresult CUDAAPI function##_##suffix parameters { \
        const frostline::emulator::PerThreadDefaultStream per_thread;    \
        return function arguments;                                       \
    }

FROSTLINE_PER_THREAD(cuEventRecord, ptsz, (CUevent event, CUstream stream), (event, stream))
FROSTLINE_PER_THREAD(cuEventRecordWithFlags, ptsz, (CUevent event, CUstream stream, unsigned flags),
                     (event, stream, flags))
FROSTLINE_PER_THREAD(cuGraphInstantiateWithParams, ptsz,
                     (CUgraphExec * exec, CUgraph graph,
                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiate_params),
                     (exec, graph, instantiate_params))
FROSTLINE_PER_THREAD(cuGraphLaunch, ptsz, (CUgraphExec graph, CUstream stream), (graph, stream))
FROSTLINE_PER_THREAD(cuGraphUpload, ptsz, (CUgraphExec graph, CUstream stream), (graph, stream))
FROSTLINE_PER_THREAD(cuLaunchCooperativeKernel, ptsz,
                     (CUfunction f, unsigned grid_dim_x, unsigned grid_dim_y, unsigned grid_dim_z,
                      unsigned block_dim_x, unsigned block_dim_y, unsigned block_dim_z,
                      unsigned shared_mem_bytes, CUstream stream, void** kernel_params),
                     (f, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z,
                      shared_mem_bytes, stream, kernel_params))
FROSTLINE_PER_THREAD(cuLaunchHostFunc, ptsz, (CUstream stream, CUhostFn fn, void* user_data),
                     (stream, fn, user_data))
FROSTLINE_PER_THREAD(cuLaunchKernel, ptsz,
                     (CUfunction f, unsigned grid_dim_x, unsigned grid_dim_y, unsigned grid_dim_z,
                      unsigned block_dim_x, unsigned block_dim_y, unsigned block_dim_z,
                      unsigned shared_mem_bytes, CUstream stream, void** kernel_params,
                      void** extra),
                     (f, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z,
                      shared_mem_bytes, stream, kernel_params, extra))
FROSTLINE_PER_THREAD(cuLaunchKernelEx, ptsz,
                     (const CUlaunchConfig* config, CUfunction f, void** kernel_params,
                      void** extra),
                     (config, f, kernel_params, extra))
FROSTLINE_PER_THREAD(cuMemAllocAsync, ptsz, (CUdeviceptr * dptr, size_t bytesize, CUstream stream),
                     (dptr, bytesize, stream))
FROSTLINE_PER_THREAD(cuMemAllocFromPoolAsync, ptsz,
                     (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream stream),
                     (dptr, bytesize, pool, stream))
FROSTLINE_PER_THREAD(cuMemFreeAsync, ptsz, (CUdeviceptr dptr, CUstream stream), (dptr, stream))
FROSTLINE_PER_THREAD(cuMemcpy, ptds, (CUdeviceptr dst, CUdeviceptr src, size_t byte_count),
                     (dst, src, byte_count))
FROSTLINE_PER_THREAD(cuMemcpy2DAsync_v2, ptsz, (const CUDA_MEMCPY2D* copy, CUstream stream),
                     (copy, stream))
FROSTLINE_PER_THREAD(cuMemcpy2DUnaligned_v2, ptds, (const CUDA_MEMCPY2D* copy), (copy))
FROSTLINE_PER_THREAD(cuMemcpy2D_v2, ptds, (const CUDA_MEMCPY2D* copy), (copy))
FROSTLINE_PER_THREAD(cuMemcpyAsync, ptsz,
                     (CUdeviceptr dst, CUdeviceptr src, size_t byte_count, CUstream stream),
                     (dst, src, byte_count, stream))
FROSTLINE_PER_THREAD(cuMemcpyDtoDAsync_v2, ptsz,
                     (CUdeviceptr dst_device, CUdeviceptr src_device, size_t byte_count,
                      CUstream stream),
                     (dst_device, src_device, byte_count, stream))
FROSTLINE_PER_THREAD(cuMemcpyDtoD_v2, ptds,
                     (CUdeviceptr dst_device, CUdeviceptr src_device, size_t byte_count),
                     (dst_device, src_device, byte_count))
FROSTLINE_PER_THREAD(cuMemcpyDtoHAsync_v2, ptsz,
                     (void* dst_host, CUdeviceptr src_device, size_t byte_count, CUstream stream),
                     (dst_host, src_device, byte_count, stream))
FROSTLINE_PER_THREAD(cuMemcpyDtoH_v2, ptds,
                     (void* dst_host, CUdeviceptr src_device, size_t byte_count),
                     (dst_host, src_device, byte_count))
FROSTLINE_PER_THREAD(cuMemcpyHtoDAsync_v2, ptsz,
                     (CUdeviceptr dst_device, const void* src_host, size_t byte_count,
                      CUstream stream),
                     (dst_device, src_host, byte_count, stream))
FROSTLINE_PER_THREAD(cuMemcpyHtoD_v2, ptds,
                     (CUdeviceptr dst_device, const void* src_host, size_t byte_count),
                     (dst_device, src_host, byte_count))
FROSTLINE_PER_THREAD(cuMemcpyPeer, ptds,
                     (CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device,
                      CUcontext src_context, size_t byte_count),
                     (dst_device, dst_context, src_device, src_context, byte_count))
FROSTLINE_PER_THREAD(cuMemcpyPeerAsync, ptsz,
                     (CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device,
                      CUcontext src_context, size_t byte_count, CUstream stream),
                     (dst_device, dst_context, src_device, src_context, byte_count, stream))
FROSTLINE_PER_THREAD(cuMemsetD16Async, ptsz,
                     (CUdeviceptr dst_device, unsigned short us, size_t n, CUstream stream),
                     (dst_device, us, n, stream))
FROSTLINE_PER_THREAD(cuMemsetD16_v2, ptds, (CUdeviceptr dst_device, unsigned short us, size_t n),
                     (dst_device, us, n))
FROSTLINE_PER_THREAD(cuMemsetD2D16Async, ptsz,
                     (CUdeviceptr dst_device, size_t dst_pitch, unsigned short us, size_t width,
                      size_t height, CUstream stream),
                     (dst_device, dst_pitch, us, width, height, stream))
FROSTLINE_PER_THREAD(cuMemsetD2D16_v2, ptds,
                     (CUdeviceptr dst_device, size_t dst_pitch, unsigned short us, size_t width,
                      size_t height),
                     (dst_device, dst_pitch, us, width, height))
FROSTLINE_PER_THREAD(cuMemsetD2D32Async, ptsz,
                     (CUdeviceptr dst_device, size_t dst_pitch, unsigned ui, size_t width,
                      size_t height, CUstream stream),
                     (dst_device, dst_pitch, ui, width, height, stream))
FROSTLINE_PER_THREAD(cuMemsetD2D32_v2, ptds,
                     (CUdeviceptr dst_device, size_t dst_pitch, unsigned ui, size_t width,
                      size_t height),
                     (dst_device, dst_pitch, ui, width, height))
FROSTLINE_PER_THREAD(cuMemsetD2D8Async, ptsz,
                     (CUdeviceptr dst_device, size_t dst_pitch, unsigned char uc, size_t width,
                      size_t height, CUstream stream),
                     (dst_device, dst_pitch, uc, width, height, stream))
FROSTLINE_PER_THREAD(cuMemsetD2D8_v2, ptds,
                     (CUdeviceptr dst_device, size_t dst_pitch, unsigned char uc, size_t width,
                      size_t height),
                     (dst_device, dst_pitch, uc, width, height))
FROSTLINE_PER_THREAD(cuMemsetD32Async, ptsz,
                     (CUdeviceptr dst_device, unsigned ui, size_t n, CUstream stream),
                     (dst_device, ui, n, stream))
FROSTLINE_PER_THREAD(cuMemsetD32_v2, ptds, (CUdeviceptr dst_device, unsigned ui, size_t n),
                     (dst_device, ui, n))
FROSTLINE_PER_THREAD(cuMemsetD8Async, ptsz,
                     (CUdeviceptr dst_device, unsigned char uc, size_t n, CUstream stream),
                     (dst_device, uc, n, stream))
FROSTLINE_PER_THREAD(cuMemsetD8_v2, ptds, (CUdeviceptr dst_device, unsigned char uc, size_t n),
                     (dst_device, uc, n))
FROSTLINE_PER_THREAD(cuStreamAddCallback, ptsz,
                     (CUstream stream, CUstreamCallback callback, void* user_data, unsigned flags),
                     (stream, callback, user_data, flags))
FROSTLINE_PER_THREAD(cuStreamBeginCapture, ptsz, (CUstream stream), (stream))
FROSTLINE_PER_THREAD(cuStreamBeginCaptureToGraph, ptsz,
                     (CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                      const CUgraphEdgeData* dependency_data, size_t num_dependencies,
                      CUstreamCaptureMode mode),
                     (stream, graph, dependencies, dependency_data, num_dependencies, mode))
FROSTLINE_PER_THREAD(cuStreamBeginCapture_v2, ptsz, (CUstream stream, CUstreamCaptureMode mode),
                     (stream, mode))
FROSTLINE_PER_THREAD(cuStreamEndCapture, ptsz, (CUstream stream, CUgraph* graph), (stream, graph))
FROSTLINE_PER_THREAD(cuStreamGetCaptureInfo, ptsz,
                     (CUstream stream, CUstreamCaptureStatus* capture_status_out,
                      cuuint64_t* id_out),
                     (stream, capture_status_out, id_out))
FROSTLINE_PER_THREAD(cuStreamGetCaptureInfo_v2, ptsz,
                     (CUstream stream, CUstreamCaptureStatus* capture_status_out,
                      cuuint64_t* id_out, CUgraph* graout, const CUgraphNode** dependencies_out,
                      size_t* num_dependencies_out),
                     (stream, capture_status_out, id_out, graout, dependencies_out,
                      num_dependencies_out))
FROSTLINE_PER_THREAD(cuStreamGetCaptureInfo_v3, ptsz,
                     (CUstream stream, CUstreamCaptureStatus* capture_status_out,
                      cuuint64_t* id_out, CUgraph* graout, const CUgraphNode** dependencies_out,
                      const CUgraphEdgeData** edge_data_out, size_t* num_dependencies_out),
                     (stream, capture_status_out, id_out, graout, dependencies_out, edge_data_out,
                      num_dependencies_out))
FROSTLINE_PER_THREAD(cuStreamGetCtx, ptsz, (CUstream stream, CUcontext* pctx), (stream, pctx))
FROSTLINE_PER_THREAD(cuStreamGetDevice, ptsz, (CUstream stream, CUdevice* device), (stream, device))
FROSTLINE_PER_THREAD(cuStreamGetFlags, ptsz, (CUstream stream, unsigned* flags), (stream, flags))
FROSTLINE_PER_THREAD(cuStreamGetId, ptsz, (CUstream stream, unsigned long long* stream_id),
                     (stream, stream_id))
FROSTLINE_PER_THREAD(cuStreamGetPriority, ptsz, (CUstream stream, int* priority),
                     (stream, priority))
FROSTLINE_PER_THREAD(cuStreamIsCapturing, ptsz,
                     (CUstream stream, CUstreamCaptureStatus* capture_status),
                     (stream, capture_status))
FROSTLINE_PER_THREAD(cuStreamQuery, ptsz, (CUstream stream), (stream))
FROSTLINE_PER_THREAD(cuStreamSynchronize, ptsz, (CUstream stream), (stream))
FROSTLINE_PER_THREAD(cuStreamUpdateCaptureDependencies, ptsz,
                     (CUstream stream, CUgraphNode* dependencies, size_t num_dependencies,
                      unsigned flags),
                     (stream, dependencies, num_dependencies, flags))
FROSTLINE_PER_THREAD(cuStreamUpdateCaptureDependencies_v2, ptsz,
                     (CUstream stream, CUgraphNode* dependencies,
                      const CUgraphEdgeData* dependency_data, size_t num_dependencies,
                      unsigned flags),
                     (stream, dependencies, dependency_data, num_dependencies, flags))
FROSTLINE_PER_THREAD(cuStreamWaitEvent, ptsz, (CUstream stream, CUevent event, unsigned flags),
                     (stream, event, flags))
