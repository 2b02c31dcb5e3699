// Where in the program blocks were allocated and freed, for whoever looks for a misuse: a double
// free is told with the places of both calls before it. Costs microseconds a call, so it is an
// option.
//
// Rule: where a place is noted the heap's locks are held, and only addresses are taken; names are
// looked up by whoever holds none, because the loader has locks of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace frostline {

/// Thread-safe. What finds no memory is not noted.
class HeapPlaces {
   public:
    static constexpr std::size_t kFrames = 6;
    using Frames = std::array<void*, kFrames>;
    /// The last allocation at an address, and the free that ended it.
    struct Places {
        Frames birth{};
        Frames death{};
    };

    /// Asks the loader where this library lies, and has it load what unwinds stacks.
    HeapPlaces() noexcept;

    void born(std::uint64_t address) noexcept;
    void died(std::uint64_t address) noexcept;

    /// Nothing but nulls where nothing is known of the address.
    Places of(std::uint64_t address) const noexcept;

    /// "allocated at ..., freed at ..." in at most `room` characters, as far as it is known: calls
    /// as OBJECT+0xOFFSET, which addr2line understands, from the inside out. Calls that do not fit
    /// are left out whole and counted. May throw std::bad_alloc.
    static std::string story(const Places& places, std::size_t room = std::string::npos);

   private:
    static std::string text(std::string_view what, const Frames& frames, std::size_t room);
    Frames here() const noexcept;

    // The code of this library, if it is not part of the program itself: its frames say nothing.
    std::uint64_t own_start_ = 0;
    std::uint64_t own_end_ = 0;

    mutable std::mutex mutex_;  // guards places_
    std::unordered_map<std::uint64_t, Places> places_;
};

}  // namespace frostline
