// Copies. Pageable memory is read before the call returns, and written before it returns; pinned
// and device memory is touched when the operation runs, at the end of its duration, and not
// earlier.
#include "tiers/emulator/copy_plan.h"

#include <cstring>
#include <vector>

#include "tiers/emulator/exported.h"

namespace frostline::emulator {
namespace {

// A synchronous copy from pageable memory up to this size returns as soon as the source has been
// read, which is what the documentation promises; for larger ones the staging would cost too much.
constexpr std::size_t kMostStagedByWaiter = 1 << 20;
constexpr int kHost = static_cast<int>(kMaxDevices);

struct Place {
    bool on_host = true;
    bool pageable = false;
    bool is_managed_region = false;
};

std::size_t extent_bytes(const CopySide& side, const CopyShape& shape) {
    return side.pitch * (shape.rows - 1) + shape.width_bytes;
}

CUresult out_of_range(const Call& call, std::uintptr_t address, std::size_t bytes) {
    return refuse("copy-out-of-range", fmt::format("{}: {} bytes from {:#x} reach beyond what lies "
                                                   "there",
                                                   call.function, bytes, address));
}

/// Whether the driver knows memory at every address of the range.
bool covered(std::uintptr_t address, std::size_t bytes) {
    const std::uintptr_t end = address + bytes;
    while (address < end) {
        const Region* const region = driver().memory.region_at(address);
        if (region == nullptr) return false;
        address = region->end();
    }
    return true;
}

/// Registrations are separate allocations to the driver, even where one ends as the next begins.
bool crosses_registrations(const Region& region, std::uintptr_t end) {
    return region.kind == RegionKind::registered && end > region.end();
}

CUresult examine(const Call& call, const CopySide& side, std::size_t bytes, Place& place) {
    if (side.address + bytes < side.address) return out_of_range(call, side.address, bytes);
    AddressSpace& memory = driver().memory;
    const Region* const region = memory.region_at(side.address);
    if (region == nullptr) {
        if (side.expect == Expect::device || memory.reservation_at(side.address) != nullptr) {
            return refuse("unmapped-access", fmt::format("{}: nothing is mapped at {:#x}",
                                                         call.function, side.address));
        }
        place.pageable = true;
        return CUDA_SUCCESS;
    }
    if (!region->on_host() && side.expect == Expect::host) {
        return refuse_value(call, "memory of a device in the place of the host's");
    }
    if (!covered(side.address, bytes)) {
        // Host memory that is registered in part only is treated as pageable, as drivers do.
        if (!region->on_host() || side.expect == Expect::device) {
            return out_of_range(call, side.address, bytes);
        }
        place.pageable = true;
        return CUDA_SUCCESS;
    }
    if (crosses_registrations(*region, side.address + bytes)) {
        return refuse("copy-across-registrations",
                      fmt::format("{}: {} bytes from {:#x} reach beyond the registration, which "
                                  "ends at {:#x}",
                                  call.function, bytes, side.address, region->end()));
    }
    place.on_host = region->on_host();
    place.is_managed_region = true;
    return CUDA_SUCCESS;
}

/// Who reaches the memory when the operation runs. Copies between devices need no peer access for
/// classic allocations, because each end is reached by its own device.
TouchedRange touched(const CopySide& side, std::size_t bytes, Need need) {
    TouchedRange range{side.address, bytes, need, side.device};
    const Region* const region = driver().memory.region_at(side.address);
    if (region == nullptr || side.device >= 0) return range;
    if (region->kind == RegionKind::mapping) {
        if (region->on_host() && side.expect == Expect::host) range.device = kHost;
    } else if (!region->on_host()) {
        range.device = region->device;
    }
    return range;
}

OperationKind kind_of(const Place& target, const Place& source) {
    if (source.on_host) return target.on_host ? OperationKind::h2h : OperationKind::h2d;
    return target.on_host ? OperationKind::d2h : OperationKind::d2d;
}

EngineKind engine_of(OperationKind kind) {
    switch (kind) {
        case OperationKind::h2d:
            return EngineKind::h2d;
        case OperationKind::d2h:
            return EngineKind::d2h;
        default:
            return EngineKind::d2d;
    }
}

const char* name_of(OperationKind kind) {
    switch (kind) {
        case OperationKind::h2d:
            return "copy to the device";
        case OperationKind::d2h:
            return "copy from the device";
        case OperationKind::d2d:
            return "copy on the device";
        default:
            return "copy on the host";
    }
}

std::byte* pointer(std::uintptr_t address) {
    return reinterpret_cast<std::byte*>(address);
}

void copy_rows(std::byte* target, std::size_t target_pitch, const std::byte* source,
               std::size_t source_pitch, CopyShape shape) {
    for (std::size_t row = 0; row < shape.rows; ++row) {
        std::memmove(target + row * target_pitch, source + row * source_pitch, shape.width_bytes);
    }
}

/// The driver would carry it out, but in the order of a device that has nothing to do with the
/// memory: whatever the memory's own device does is not waited for.
void report_wrong_device(const Call& call, const Stream& stream, const CopySide& side) {
    if (stream.device != call.context->device) {
        report_misuse("wrong-device",
                      fmt::format("{}: a stream of device {} while device {} is current",
                                  call.function, stream.device, call.context->device));
        return;
    }
    const Region* const region = driver().memory.region_at(side.address);
    if (region == nullptr || region->kind == RegionKind::mapping || region->on_host()) return;
    if (region->device == stream.device) return;
    report_misuse("wrong-device", fmt::format("{}: memory of device {} in a stream of device {}",
                                              call.function, region->device, stream.device));
}

/// Reads the source now, and not when the operation runs.
std::function<std::optional<Violation>()> staged(const CopySide& target, const CopySide& source,
                                                 CopyShape shape) {
    auto staging = std::make_shared<std::vector<std::byte>>(shape.rows * shape.width_bytes);
    copy_rows(staging->data(), shape.width_bytes, pointer(source.address), source.pitch, shape);
    return [=] {
        copy_rows(pointer(target.address), target.pitch, staging->data(), shape.width_bytes, shape);
        return std::optional<Violation>{};
    };
}

std::function<std::optional<Violation>()> direct(const CopySide& target, const CopySide& source,
                                                 CopyShape shape) {
    return [=] {
        copy_rows(pointer(target.address), target.pitch, pointer(source.address), source.pitch,
                  shape);
        return std::optional<Violation>{};
    };
}

/// A synchronous call is prohibited in a capture of its own thread, and by captures in general.
CUresult refuse_waiting_in_capture(const Call& call, const Stream& stream, Waiting waiting) {
    if (waiting == Waiting::asynchronous || driver().captures.empty()) return CUDA_SUCCESS;
    if (stream.legacy && legacy_is_captured(*call.context)) {
        return refuse("illegal-during-capture", call.function, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    if (!unsafe_call_prohibited()) return CUDA_SUCCESS;
    invalidate_captures();
    return refuse("illegal-during-capture", call.function, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult broken(const Call& call) {
    return call.context->sticky;
}

/// Waits until the operation is the first of its stream, as if the stream had been synchronised
/// before the call.
void wait_for_predecessors(Lock& lock, const std::shared_ptr<Operation>& operation) {
    wait_until(lock, [&] { return operation->state != Operation::State::queued; });
}

}  // namespace

CUresult copy(Call& call, const std::shared_ptr<Stream>& stream, CopySide target, CopySide source,
              CopyShape shape, Waiting waiting) {
    const CUresult prohibited = refuse_waiting_in_capture(call, *stream, waiting);
    if (prohibited != CUDA_SUCCESS) return prohibited;
    if (shape.width_bytes == 0 || shape.rows == 0) return CUDA_SUCCESS;
    Place to;
    Place from;
    const std::size_t target_bytes = extent_bytes(target, shape);
    const std::size_t source_bytes = extent_bytes(source, shape);
    if (const CUresult r = examine(call, target, target_bytes, to); r != CUDA_SUCCESS) return r;
    if (const CUresult r = examine(call, source, source_bytes, from); r != CUDA_SUCCESS) return r;
    // Copies between devices concern two; any other belongs in a stream of its device.
    if (to.on_host != from.on_host) {
        report_wrong_device(call, *stream, to.on_host ? source : target);
    }

    auto operation = std::make_shared<Operation>();
    operation->kind = kind_of(to, from);
    operation->engine = engine_of(operation->kind);
    operation->stream = stream;
    operation->device = stream->device;
    operation->bytes = shape.rows * shape.width_bytes;
    operation->what = name_of(operation->kind);
    if (to.is_managed_region) {
        operation->touched.push_back(touched(target, target_bytes, Need::write));
    }
    if (from.is_managed_region) {
        operation->touched.push_back(touched(source, source_bytes, Need::read));
    }
    const bool captured = stream->capture != nullptr;
    const bool stage =
        from.pageable && !to.on_host && !captured &&
        (waiting == Waiting::asynchronous || operation->bytes <= kMostStagedByWaiter);
    operation->perform = stage ? staged(target, source, shape) : direct(target, source, shape);
    if (const CUresult r = submit(operation); r != CUDA_SUCCESS) return r;
    if (captured) return CUDA_SUCCESS;
    const bool pageable = to.pageable || (from.pageable && !stage);
    const bool host_involved = to.on_host || from.on_host;
    if (pageable || (waiting == Waiting::synchronous && host_involved && !stage)) {
        wait_for(call.lock, operation);
        return broken(call);
    }
    if (waiting == Waiting::synchronous && stage) wait_for_predecessors(call.lock, operation);
    return CUDA_SUCCESS;
}

CUresult fill(Call& call, const std::shared_ptr<Stream>& stream, CopySide target, CopyShape shape,
              std::uint32_t value, std::size_t value_bytes, Waiting waiting) {
    const CUresult prohibited = refuse_waiting_in_capture(call, *stream, waiting);
    if (prohibited != CUDA_SUCCESS) return prohibited;
    if (shape.width_bytes == 0 || shape.rows == 0) return CUDA_SUCCESS;
    if (target.address % value_bytes != 0 || target.pitch % value_bytes != 0) {
        return refuse_value(call, "the target is not aligned to the value");
    }
    Place to;
    const std::size_t bytes = extent_bytes(target, shape);
    if (const CUresult r = examine(call, target, bytes, to); r != CUDA_SUCCESS) return r;
    report_wrong_device(call, *stream, target);
    auto operation = std::make_shared<Operation>();
    operation->kind = OperationKind::fill;
    operation->engine = EngineKind::d2d;
    operation->stream = stream;
    operation->device = stream->device;
    operation->bytes = shape.rows * shape.width_bytes;
    operation->what = "fill";
    operation->touched.push_back(touched(target, bytes, Need::write));
    operation->perform = [=] {
        for (std::size_t row = 0; row < shape.rows; ++row) {
            std::byte* const begin = pointer(target.address + row * target.pitch);
            if (value_bytes == 1) {
                std::memset(begin, static_cast<int>(value & 0xff), shape.width_bytes);
                continue;
            }
            for (std::size_t i = 0; i < shape.width_bytes; i += value_bytes) {
                std::memcpy(begin + i, &value, value_bytes);
            }
        }
        return std::optional<Violation>{};
    };
    if (const CUresult r = submit(operation); r != CUDA_SUCCESS) return r;
    // Fills are asynchronous to the host, the synchronous ones, too, unless they fill host memory.
    if (waiting == Waiting::synchronous && to.on_host && !stream->capture) {
        wait_for(call.lock, operation);
        return broken(call);
    }
    return CUDA_SUCCESS;
}

}  // namespace frostline::emulator
