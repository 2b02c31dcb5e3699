// A library in the place of libcuda.so.1 that registers nothing but keeps books, for tests of what
// is done when a driver refuses.
#include "tests/tiers/fake_driver/fake_cuda_state.h"

#include <cuda.h>

#include <array>
#include <cstdio>
#include <iterator>
#include <new>

#define EXPORTED extern "C" __attribute__((visibility("default")))

static FakeCudaState state;

EXPORTED FakeCudaState* fake_cuda_state() {
    return &state;
}

EXPORTED CUresult cuInit(unsigned) {
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuGetErrorName(CUresult, const char** text) {
    *text = "CUDA_ERROR_OF_THE_FAKE";
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDriverGetVersion(int* version) {
    *version = 12040;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGetCount(int* count) {
    *count = 1;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    if (ordinal != 0) return CUDA_ERROR_INVALID_DEVICE;
    *device = 7;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGetName(char* name, int length, CUdevice) {
    std::snprintf(name, static_cast<std::size_t>(length), "Fake GPU");
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) {
    *bytes = std::size_t{1} << 30;
    return CUDA_SUCCESS;
}

#ifndef FAKE_CUDA_WITHOUT_REGISTRATION

namespace {

std::array<const void*, 8> outer_contexts;
std::size_t outer_count = 0;
char primary_context;  // its address is the handle

void note_the_caller() {
    if (state.current_context != &primary_context) ++state.calls_without_context;
    if (state.capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED) ++state.calls_unsafe_in_capture;
}

}  // namespace

EXPORTED CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    if (device != 7) return CUDA_ERROR_INVALID_DEVICE;
    ++state.primary_retained;
    *context = reinterpret_cast<CUcontext>(&primary_context);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    if (device != 7 || state.primary_retained == 0) ++state.bad_calls;
    --state.primary_retained;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuCtxPushCurrent_v2(CUcontext context) {
    if (state.refuse_push != 0) return CUDA_ERROR_INVALID_CONTEXT;
    outer_contexts[outer_count++] = state.current_context;
    state.current_context = context;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuCtxPopCurrent_v2(CUcontext* context) {
    *context = static_cast<CUcontext>(const_cast<void*>(state.current_context));
    if (outer_count == 0) {
        ++state.bad_calls;
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    state.current_context = outer_contexts[--outer_count];
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    const int before = state.capture_mode;
    state.capture_mode = *mode;
    *mode = static_cast<CUstreamCaptureMode>(before);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemHostRegister_v2(void* address, std::size_t size, unsigned) {
    note_the_caller();
    ++state.registrations;
    const bool too_late = state.refuse_registration_from != 0 &&
                          state.registrations >= state.refuse_registration_from;
    if (too_late || size > state.refuse_registrations_above) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto start = reinterpret_cast<std::uintptr_t>(address);
    const auto next = state.registered.lower_bound(start);
    const bool hits_next = next != state.registered.end() && next->first < start + size;
    const bool hits_last = next != state.registered.begin() &&
                           std::prev(next)->first + std::prev(next)->second > start;
    if (hits_next || hits_last || start % 4096 != 0 || size % 4096 != 0 || size == 0) {
        ++state.bad_calls;
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    try {
        state.registered[start] = size;
    } catch (const std::bad_alloc&) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    // As the driver does: every page is resident from now on.
    for (std::size_t at = 0; at < size; at += 4096) {
        auto* const byte = static_cast<volatile char*>(address) + at;
        *byte = *byte;
    }
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemHostUnregister(void* address) {
    note_the_caller();
    ++state.unregistrations;
    if (state.refuse_unregistrations > 0) {
        --state.refuse_unregistrations;
        return CUDA_ERROR_UNKNOWN;
    }
    if (state.registered.erase(reinterpret_cast<std::uintptr_t>(address)) != 1) {
        ++state.bad_calls;
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    return CUDA_SUCCESS;
}

#endif
