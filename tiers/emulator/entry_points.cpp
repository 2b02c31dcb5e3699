// How programs find the driver's functions, and what they may ask of it before anything else: all
// of this works without cuInit.
#include "tiers/emulator/entry_points.h"

#include <cudaProfiler.h>

#include "tiers/emulator/exported.h"
#include "tiers/emulator/proc_address_table.h"
#include "tiers/emulator/result_names.h"

namespace frostline::emulator {

CUresult look_up(const char* symbol, void** address, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult& status) {
    constexpr cuuint64_t kKnown =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const int newest = driver().settings.version;
    const bool both = (flags & kKnown) == kKnown;
    if (symbol == nullptr || address == nullptr || (flags & ~kKnown) != 0 || both ||
        version > newest) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    const ProcAddress found = find_proc_address(
        symbol, version, newest, per_thread ? DefaultStream::per_thread : DefaultStream::legacy);
    *address = found.address;
    status = found.status;
    return CUDA_SUCCESS;
}

namespace {

CUresult name_result(CUresult error, const char** text, const char* (*name)(CUresult)) {
    if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *text = name(error);
    return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace
}  // namespace frostline::emulator

using namespace frostline::emulator;

// The form of CUDA 12: a name that is not found is not an error, but `status` and null say so.
FROSTLINE_EXPORTED CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** address,
                                                     int version, cuuint64_t flags,
                                                     CUdriverProcAddressQueryResult* status) {
    static Function& self = Function::named(__func__, Needs::nothing, InCapture::allowed);
    return self.call([&](Call&) -> CUresult {
        CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        const CUresult result = look_up(symbol, address, version, flags, found);
        if (result == CUDA_SUCCESS && status != nullptr) *status = found;
        return result;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuDriverGetVersion(int* version) {
    static Function& self = Function::named(__func__, Needs::nothing, InCapture::allowed);
    return self.call([&](Call&) -> CUresult {
        if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *version = driver().settings.version;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuGetErrorName(CUresult error, const char** text) {
    static Function& self = Function::named(__func__, Needs::nothing, InCapture::allowed);
    return self.call([&](Call&) { return name_result(error, text, result_name); });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text) {
    static Function& self = Function::named(__func__, Needs::nothing, InCapture::allowed);
    return self.call([&](Call&) { return name_result(error, text, result_text); });
}

// These tables are not documented, and what asks for them has to do without.
FROSTLINE_EXPORTED CUresult CUDAAPI cuGetExportTable(const void** table, const CUuuid*) {
    static Function& self = Function::named(__func__, Needs::nothing, InCapture::allowed);
    return self.call([&](Call&) -> CUresult {
        if (table == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *table = nullptr;
        return CUDA_ERROR_NOT_FOUND;
    });
}

// There is no profiler to start; that is no error on a real driver either.
FROSTLINE_EXPORTED CUresult CUDAAPI cuProfilerStart() {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([](Call&) { return CUDA_SUCCESS; });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuProfilerStop() {
    static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);
    return self.call([](Call&) { return CUDA_SUCCESS; });
}
