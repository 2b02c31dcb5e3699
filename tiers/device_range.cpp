// The five steps of a move, in both directions.
#include "tiers/device_range.h"

#include "tiers/check.h"

#include <future>
#include <new>
#include <utility>

namespace frostline {
namespace {

const char* text(DeviceRange::Fixed reason) noexcept {
    switch (reason) {
        case DeviceRange::Fixed::no:
            return "not fixed";
        case DeviceRange::Fixed::exported:
            return "exported to another process";
        case DeviceRange::Fixed::registered:
            return "registered with a communication library";
        case DeviceRange::Fixed::captured:
            return "captured in a graph";
    }
    return "fixed";
}

Error no_memory() noexcept {
    return Error(Errc::out_of_memory, 0, "no memory to move a range of device memory");
}

}  // namespace

Result<std::unique_ptr<DeviceRange>> DeviceRange::create(const Options& options) noexcept {
    FROSTLINE_TRY(const Extent extent, options.tier->reserve(options.size_bytes));
    auto* const made = new (std::nothrow) DeviceRange(options, extent);
    if (made == nullptr) {
        options.tier->release(extent);
        return no_memory();
    }
    return std::unique_ptr<DeviceRange>(made);
}

DeviceRange::~DeviceRange() {
    FROSTLINE_CHECK(holds_ == 0 && state_ != State::moving,
                    "a range of device memory ends while it is held or moves");
    (void)wait_for_users();
    if (away_.tier != nullptr) away_.tier->release(away_.extent);
    options_.tier->release(extent_);
}

CUdeviceptr DeviceRange::address() const noexcept {
    return reinterpret_cast<CUdeviceptr>(options_.tier->address(extent_));
}

DeviceRange::State DeviceRange::state() const noexcept {
    const std::lock_guard lock(mutex_);
    return state_;
}

DeviceRange::Fixed DeviceRange::fixed() const noexcept {
    const std::lock_guard lock(mutex_);
    return fixed_;
}

Result<void> DeviceRange::hold() noexcept {
    const std::lock_guard lock(mutex_);
    if (state_ != State::resident) {
        return Error(Errc::busy, 0, "a range of device memory is {}",
                     state_ == State::moving ? "being moved" : "evicted: resume it first");
    }
    ++holds_;
    return ok();
}

Result<void> DeviceRange::let_go(CUstream stream) noexcept {
    const auto note = [&]() -> Result<void> {
        FROSTLINE_TRY(CudaEvent event, CudaEvent::create(options_.tier->copies().context()));
        FROSTLINE_TRY_VOID(event.record(stream));
        const std::lock_guard lock(mutex_);
        // Streams are no keys: a handle may name another stream on another thread, or later.
        used_until_.remove_if([](const CudaEvent& each) { return each.done().value_or(false); });
        used_until_.push_back(std::move(event));
        return ok();
    };
    Result<void> noted = no_memory();
    try {
        noted = note();
    } catch (const std::bad_alloc&) {
    }
    if (!noted) (void)synchronize(*options_.tier->copies().context(), stream);
    const std::lock_guard lock(mutex_);
    FROSTLINE_CHECK(holds_ > 0, "a range of device memory was let go more often than held");
    --holds_;
    return noted;
}

Result<void> DeviceRange::fix(Fixed reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (state_ != State::resident) {
        return Error(Errc::busy, 0, "a range of device memory is not resident and cannot be {}",
                     text(reason));
    }
    fixed_ = reason;
    return ok();
}

Result<void> DeviceRange::start_move(State from) noexcept {
    const std::lock_guard lock(mutex_);
    if (state_ == State::moving) {
        return Error(Errc::busy, 0, "a range of device memory is being moved already");
    }
    if (state_ != from) {
        if (from == State::resident) {
            return Error(Errc::not_found, 0, "a range of device memory is evicted already");
        }
        return Error(Errc::busy, 0, "a range of device memory is resident already");
    }
    if (fixed_ != Fixed::no) {
        return Error(Errc::busy, 0, "a range of device memory cannot move: it is {}", text(fixed_));
    }
    if (holds_ > 0) {
        return Error(Errc::busy, 0, "a range of device memory is held by {} who queue work on it",
                     holds_);
    }
    state_ = State::moving;
    return ok();
}

void DeviceRange::end_move(State to) noexcept {
    const std::lock_guard lock(mutex_);
    state_ = to;
}

// Nobody adds events while it moves, or ends.
Result<void> DeviceRange::wait_for_users() noexcept {
    for (const CudaEvent& event : used_until_) FROSTLINE_TRY_VOID(event.synchronize());
    used_until_.clear();
    return ok();
}

Result<CopyOutcome> DeviceRange::copy(Tier& from, const Extent& source, Tier& to,
                                      const Extent& target) noexcept {
    try {
        std::promise<CopyOutcome> ended;
        FROSTLINE_TRY_VOID(options_.copies->submit(
            {.source_tier = &from,
             .source = source,
             .target_tier = &to,
             .target = target,
             .checksum = options_.verify,
             .done = [&](const CopyOutcome& outcome) { ended.set_value(outcome); },
             .priority = &to == options_.tier ? CopyPriority::demand : CopyPriority::eviction}));
        const CopyOutcome outcome = ended.get_future().get();
        if (!outcome.status) return outcome.status.error();
        return outcome;
    } catch (const std::bad_alloc&) {
        return no_memory();
    }
}

Result<void> DeviceRange::evict(Tier& to) noexcept {
    FROSTLINE_TRY_VOID(start_move(State::resident));
    const auto away = copy_away(to);
    if (!away) {
        end_move(State::resident);
        return away.error();
    }
    away_ = *away;
    // The content is safe. Should the memory not go, the tier has closed itself, and counts it.
    const Result<void> gone = options_.tier->unback(extent_);
    end_move(State::evicted);
    return gone;
}

Result<DeviceRange::Away> DeviceRange::copy_away(Tier& to) noexcept {
    FROSTLINE_TRY(const Extent target, to.reserve(size_bytes()));
    const auto copied = [&]() -> Result<CopyOutcome> {
        FROSTLINE_TRY_VOID(wait_for_users());
        return copy(*options_.tier, extent_, to, target);
    }();
    if (!copied) {
        to.release(target);
        return copied.error();
    }
    return Away{&to, target, copied->checksum};
}

Result<void> DeviceRange::resume() noexcept {
    FROSTLINE_TRY_VOID(start_move(State::evicted));
    const Result<void> back = copy_back();
    if (!back) {
        end_move(State::evicted);
        return back;
    }
    const Away left = std::exchange(away_, {});
    end_move(State::resident);
    left.tier->release(left.extent);
    return ok();
}

Result<void> DeviceRange::copy_back() noexcept {
    FROSTLINE_TRY_VOID(options_.tier->back(extent_));
    const auto copied = copy(*away_.tier, away_.extent, *options_.tier, extent_);
    Result<void> status = copied ? ok() : Result<void>(copied.error());
    if (copied && options_.verify && copied->checksum != away_.checksum) {
        status = Error(Errc::corrupt, 0, "{} bytes of device memory came back changed from {}",
                       size_bytes(), name(away_.tier->info().kind));
    }
    if (!status) (void)options_.tier->unback(extent_);
    return status;
}

}  // namespace frostline
