// Where a tensor's authoritative copy is, in one atomic word: home tier, target of a move in
// progress, pins, a flag that every write sets, and the generation of the slot.
//
// Invariants, each kept by one atomic exchange of the word:
//   1. There is exactly one home until the word is retired.
//   2. A move begins and publishes only while nobody pins the tensor, so that the home of a pinned
//      tensor never changes. Pins taken during the copy are allowed; they make publish() fail.
//   3. Copies elsewhere than at home are good only while `written` is clear. A move begins with the
//      flag clear and is published only if it still is, so that no write is ever lost.
//   4. release() happens once. Whoever takes the last thing away that still used the tensor (the
//      releaser, the last pin, or the move) is told so, and only that one may free its room.
//   5. A pin names the generation that it means, so that it never holds a later tenant of the slot.
//
// The order of a move (DESIGN.md, section 3): reserve, begin_move, copy, fence, publish, retire.
// Hot path: pin and unpin are one atomic exchange each (budget: 20 ns a pair, uncontended).
#pragma once

#include "tiers/extent.h"

#include <atomic>
#include <cstdint>

namespace frostline {

/// What the word says at one instant.
struct ResidencyState {
    TierId home{};
    TierId target{};  ///< meaningful while moving
    bool moving = false;
    bool released = false;
    bool written = false;  ///< since clear_written(): copies elsewhere are void
    std::uint16_t pins = 0;
    std::uint32_t generation = 0;

    friend bool operator==(const ResidencyState&, const ResidencyState&) = default;
};

enum class Access : std::uint8_t { read, write };

/// Lock-free; all functions from any thread. A new word is released, with generation 0.
class Residency {
   public:
    static constexpr std::uint16_t kMaxPins = 0xffff;

    enum class PinResult : std::uint8_t { pinned, gone, too_many_pins };
    enum class PublishResult : std::uint8_t {
        published,  ///< the target is home now; the caller retires the old place
        pinned,     ///< somebody uses the old place; the copy is good, but not home
        written,    ///< the bytes were written meanwhile; the copy is void
        released,   ///< the tensor was given up meanwhile; the copy is void
    };
    enum class ReleaseResult : std::uint8_t {
        retire,         ///< nobody uses it: the caller retires it
        retired_later,  ///< a pin or a move uses it, and retires it when done
        already,        ///< it was released before
    };

    Residency() noexcept;

    /// Begins a new life of the slot, resident in `home` and unpinned. Only for a word that is
    /// released and retired.
    void reset(TierId home, std::uint32_t generation) noexcept;

    ResidencyState load() const noexcept { return decode(word_.load(std::memory_order_acquire)); }

    /// Holds the tensor at its home until unpin(). A pin for writing sets `written`.
    PinResult pin(std::uint32_t generation, Access access) noexcept;

    /// True: this was the last use of a released tensor, and the caller retires it.
    [[nodiscard]] bool unpin() noexcept;

    /// The caller has given up all copies elsewhere. False if pinned or moving: a write may be
    /// going on, or a copy of what was there before it.
    [[nodiscard]] bool clear_written() noexcept;

    /// From resident to moving; false if pinned, moving, released, written, or already at home
    /// there.
    [[nodiscard]] bool begin_move(TierId target) noexcept;

    /// Ends a move whose copy is in place and fenced. Follow with end_move() unless the result is
    /// `published`.
    PublishResult publish() noexcept;

    /// Ends a move without a new home. True: it was the last use of a released tensor, and the
    /// caller retires it.
    [[nodiscard]] bool end_move() noexcept;

    /// Gives the tensor up: no new pins, no new moves.
    ReleaseResult release() noexcept;

   private:
    static ResidencyState decode(std::uint64_t word) noexcept;
    static std::uint64_t encode(const ResidencyState& state) noexcept;
    template <class Change>
    bool update(Change&& change, ResidencyState& before) noexcept;

    std::atomic<std::uint64_t> word_;
};

}  // namespace frostline
