// Every transition is one atomic exchange of the word. Pins are its lowest bits.
//
// Memory order: a successful transition both acquires and releases, so that whoever pins after a
// publish sees the new copy's place, and whoever retires sees the last reader's accesses done.
#include "allocator/residency.h"

#include "tiers/check.h"

namespace frostline {
namespace {

constexpr unsigned kHomeShift = 16;
constexpr unsigned kTargetShift = 20;
constexpr std::uint64_t kTierMask = 0xf;
constexpr std::uint64_t kMoving = std::uint64_t{1} << 24;
constexpr std::uint64_t kReleased = std::uint64_t{1} << 25;
constexpr std::uint64_t kWritten = std::uint64_t{1} << 26;
constexpr unsigned kGenerationShift = 32;

static_assert(kMaxTiers <= kTierMask + 1);

bool last_use_gone(const ResidencyState& state) {
    return state.released && !state.moving && state.pins == 0;
}

}  // namespace

Residency::Residency() noexcept : word_(encode({.released = true})) {}

ResidencyState Residency::decode(std::uint64_t word) noexcept {
    return {.home = static_cast<TierId>(word >> kHomeShift & kTierMask),
            .target = static_cast<TierId>(word >> kTargetShift & kTierMask),
            .moving = (word & kMoving) != 0,
            .released = (word & kReleased) != 0,
            .written = (word & kWritten) != 0,
            .pins = static_cast<std::uint16_t>(word),
            .generation = static_cast<std::uint32_t>(word >> kGenerationShift)};
}

std::uint64_t Residency::encode(const ResidencyState& state) noexcept {
    return std::uint64_t{state.pins} | std::uint64_t{index_of(state.home)} << kHomeShift |
           std::uint64_t{index_of(state.target)} << kTargetShift | (state.moving ? kMoving : 0) |
           (state.released ? kReleased : 0) | (state.written ? kWritten : 0) |
           std::uint64_t{state.generation} << kGenerationShift;
}

// `change` edits the state and returns whether the transition is allowed from it.
template <class Change>
bool Residency::update(Change&& change, ResidencyState& before) noexcept {
    std::uint64_t word = word_.load(std::memory_order_acquire);
    while (true) {
        before = decode(word);
        ResidencyState after = before;
        if (!change(after)) return false;
        if (word_.compare_exchange_weak(word, encode(after), std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
            return true;
        }
    }
}

void Residency::reset(TierId home, std::uint32_t generation) noexcept {
    FROSTLINE_CHECK(last_use_gone(load()), "a slot was reused while its tensor was in use");
    word_.store(encode({.home = home, .generation = generation}), std::memory_order_release);
}

// The hot pair works on the word itself: decoding it costs as much as the exchange.
Residency::PinResult Residency::pin(std::uint32_t generation, Access access) noexcept {
    std::uint64_t word = word_.load(std::memory_order_acquire);
    std::uint64_t after = 0;
    do {
        if ((word & kReleased) != 0 || word >> kGenerationShift != generation) {
            return PinResult::gone;
        }
        if ((word & kMaxPins) == kMaxPins) return PinResult::too_many_pins;
        after = (word + 1) | (access == Access::write ? kWritten : 0);
    } while (!word_.compare_exchange_weak(word, after, std::memory_order_acq_rel,
                                          std::memory_order_acquire));
    return PinResult::pinned;
}

bool Residency::unpin() noexcept {
    const std::uint64_t before = word_.fetch_sub(1, std::memory_order_acq_rel);
    FROSTLINE_CHECK((before & kMaxPins) != 0, "a tensor was unpinned more often than pinned");
    return (before & (kMaxPins | kMoving | kReleased)) == (kReleased | 1);
}

bool Residency::clear_written() noexcept {
    ResidencyState before;
    return update(
        [](ResidencyState& state) {
            if (state.pins > 0 || state.moving) return false;
            state.written = false;
            return true;
        },
        before);
}

bool Residency::begin_move(TierId target) noexcept {
    ResidencyState before;
    return update(
        [target](ResidencyState& state) {
            if (state.pins > 0 || state.moving || state.released || state.written ||
                state.home == target) {
                return false;
            }
            state.moving = true;
            state.target = target;
            return true;
        },
        before);
}

Residency::PublishResult Residency::publish() noexcept {
    ResidencyState before;
    const bool published = update(
        [](ResidencyState& state) {
            if (!state.moving || state.released || state.written || state.pins > 0) return false;
            state.home = state.target;
            state.moving = false;
            return true;
        },
        before);
    FROSTLINE_CHECK(before.moving, "a move was published that had not begun");
    if (published) return PublishResult::published;
    if (before.released) return PublishResult::released;
    return before.written ? PublishResult::written : PublishResult::pinned;
}

bool Residency::end_move() noexcept {
    ResidencyState before;
    const bool ended = update(
        [](ResidencyState& state) {
            if (!state.moving) return false;
            state.moving = false;
            return true;
        },
        before);
    FROSTLINE_CHECK(ended, "a move ended that had not begun");
    before.moving = false;
    return last_use_gone(before);
}

Residency::ReleaseResult Residency::release() noexcept {
    ResidencyState before;
    const bool released = update(
        [](ResidencyState& state) {
            if (state.released) return false;
            state.released = true;
            return true;
        },
        before);
    if (!released) return ReleaseResult::already;
    before.released = true;
    return last_use_gone(before) ? ReleaseResult::retire : ReleaseResult::retired_later;
}

}  // namespace frostline
