// Fills with values of 8, 16 and 32 bits, flat and by rows.
#include "tiers/emulator/copy_plan.h"
#include "tiers/emulator/exported.h"

using namespace frostline::emulator;

namespace {

struct Fill {
    CUdeviceptr target;
    std::size_t pitch;
    std::uint32_t value;
    std::size_t value_bytes;
    std::size_t width;  ///< in values
    std::size_t rows;
};

CUresult run(Function& self, const Fill& f, CUstream handle, Waiting waiting) {
    return self.call([&](Call& call) -> CUresult {
        CUresult error = CUDA_SUCCESS;
        const auto stream = resolve_stream(call.context, handle, error);
        if (!stream) return error;
        if (f.rows > 1 && f.pitch < f.width * f.value_bytes) {
            return refuse_value(call, "the pitch is smaller than a row");
        }
        return fill(call, stream, {f.target, f.pitch, Expect::device},
                    {f.width * f.value_bytes, f.rows}, f.value, f.value_bytes, waiting);
    });
}

}  // namespace

// The forms differ in the type of the value, in rows and in whether they name a stream.
#define FROSTLINE_FILLS(bits, type)                                                               \
    FROSTLINE_EXPORTED CUresult CUDAAPI cuMemsetD##bits##_v2(CUdeviceptr target, type value,      \
                                                             std::size_t count) {                 \
        static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);    \
        return run(self, {target, 0, value, sizeof(type), count, 1}, nullptr,                     \
                   Waiting::synchronous);                                                         \
    }                                                                                             \
    FROSTLINE_EXPORTED CUresult CUDAAPI cuMemsetD##bits##Async(CUdeviceptr target, type value,    \
                                                               std::size_t count, CUstream s) {   \
        static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);    \
        return run(self, {target, 0, value, sizeof(type), count, 1}, s, Waiting::asynchronous);   \
    }                                                                                             \
    FROSTLINE_EXPORTED CUresult CUDAAPI cuMemsetD2D##bits##_v2(                                   \
        CUdeviceptr target, std::size_t pitch, type value, std::size_t width, std::size_t rows) { \
        static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);    \
        return run(self, {target, pitch, value, sizeof(type), width, rows}, nullptr,              \
                   Waiting::synchronous);                                                         \
    }                                                                                             \
    FROSTLINE_EXPORTED CUresult CUDAAPI cuMemsetD2D##bits##Async(                                 \
        CUdeviceptr target, std::size_t pitch, type value, std::size_t width, std::size_t rows,   \
        CUstream s) {                                                                             \
        static Function& self = Function::named(__func__, Needs::context, InCapture::allowed);    \
        return run(self, {target, pitch, value, sizeof(type), width, rows}, s,                    \
                   Waiting::asynchronous);                                                        \
    }

FROSTLINE_FILLS(8, unsigned char)
FROSTLINE_FILLS(16, unsigned short)
FROSTLINE_FILLS(32, unsigned int)
