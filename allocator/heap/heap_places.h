// Where in the program blocks were allocated and freed, for whoever looks for a misuse: a double
// free is told with the places of all three calls. Costs microseconds a call, so it is an option.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace frostline {

/// Thread-safe. What finds no memory is not noted.
class HeapPlaces {
   public:
    static constexpr std::size_t kFrames = 6;
    using Frames = std::array<void*, kFrames>;

    /// The calls on this thread's stack, without the innermost `skip` and this one.
    static Frames here(int skip) noexcept;
    /// As OBJECT+0xOFFSET, which addr2line understands, from the inside out.
    static std::string text(const Frames& frames);

    void born(std::uint64_t address, const Frames& frames) noexcept;
    void died(std::uint64_t address, const Frames& frames) noexcept;

    /// "allocated at ..., freed at ..." of the block that starts at `address`, or that did last;
    /// empty when nothing is known of it.
    std::string story(std::uint64_t address) const;

   private:
    struct Places {
        Frames birth{};
        Frames death{};
    };
    mutable std::mutex mutex_;  // guards places_
    std::unordered_map<std::uint64_t, Places> places_;
};

}  // namespace frostline
