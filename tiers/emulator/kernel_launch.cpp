// A launch that is refused has no effect at all.
#include "tiers/emulator/kernel_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tiers/emulator/device_limits.h"
#include "tiers/emulator/driver.h"
#include "tiers/emulator/kernel_objects.h"
#include "tiers/emulator/kernel_operation.h"
#include "tiers/emulator/launch_parameters.h"

namespace frostline::emulator {
namespace {

bool is_of_context(const KernelHandle& kernel, const Context& context, const Call& call) {
    // A kernel of a library runs in any context.
    if (kernel.library != 0) return true;
    const auto owner = kernel.context.lock();
    if (owner.get() == &context) return true;
    report_misuse(
        owner == nullptr ? "destroyed-handle" : "wrong-device",
        fmt::format("{}: kernel {} was loaded in another context{}", call.function, kernel.name,
                    owner == nullptr ? ", which was destroyed"
                                     : fmt::format(" (device {}) than the current one (device {})",
                                                   owner->device, context.device)));
    return false;
}

bool is_of_context(const Stream& stream, const Context& context, const Call& call) {
    if (stream.context.lock().get() == &context) return true;
    report_misuse("wrong-device",
                  fmt::format("{}: the stream belongs to another context (device {}) than the "
                              "current one (device {})",
                              call.function, stream.device, context.device));
    return false;
}

}  // namespace

bool fits_at_once(const LaunchRequest& request) noexcept {
    const auto [grid, block] = request.shape;
    if (!shape_is_possible(request.shape)) return false;
    const auto threads = static_cast<int>(block.x * block.y * block.z);
    const auto blocks = std::uint64_t{grid.x} * grid.y * grid.z;
    const int resident = kMaxThreadsPerMultiprocessor / threads * kMultiprocessors;
    return blocks <= static_cast<std::uint64_t>(resident);
}

CUresult make_launch(const Call& call, const LaunchRequest& request,
                     const std::shared_ptr<Context>& context,
                     std::shared_ptr<Operation>& operation) {
    const auto kernel = resolve_kernel(request.function, call.function);
    if (kernel == nullptr || !is_of_context(*kernel, *context, call)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!shape_is_possible(request.shape)) return CUDA_ERROR_INVALID_VALUE;
    const int most_shared = std::max(kernel->dynamic_shared_bytes, kDefaultSharedBytes);
    if (request.shared_bytes > static_cast<std::size_t>(most_shared)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::vector<std::byte> packed;
    const CUresult result =
        pack_parameters(*kernel->kernel, request.parameters, request.extra, packed);
    if (result != CUDA_SUCCESS) return result;
    operation = make_kernel_operation(kernel, request.shape, std::move(packed), context->device);
    return CUDA_SUCCESS;
}

CUresult launch(Call& call, const LaunchRequest& request, CUstream stream) {
    std::shared_ptr<Operation> operation;
    const CUresult made = make_launch(call, request, call.context, operation);
    if (made != CUDA_SUCCESS) return made;
    CUresult error = CUDA_SUCCESS;
    const auto target = resolve_stream(call.context, stream, error);
    if (target == nullptr) return error;
    if (!is_of_context(*target, *call.context, call)) return CUDA_ERROR_INVALID_HANDLE;
    operation->stream = target;
    return submit(operation);
}

}  // namespace frostline::emulator
