// Return addresses of the C library, told by object and offset.
#include "allocator/heap/heap_places.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <string_view>

namespace frostline {

HeapPlaces::Frames HeapPlaces::here(int skip) noexcept {
    constexpr int kDeepest = 16;
    std::array<void*, kDeepest> stack{};
    const int depth = backtrace(stack.data(), kDeepest);
    Frames frames{};
    for (int i = skip + 1; i < depth && i - skip - 1 < static_cast<int>(kFrames); ++i) {
        frames[static_cast<std::size_t>(i - skip - 1)] = stack[static_cast<std::size_t>(i)];
    }
    return frames;
}

std::string HeapPlaces::text(const Frames& frames) {
    std::string text;
    for (void* const frame : frames) {
        if (frame == nullptr) break;
        Dl_info info{};
        std::string_view object = "?";
        auto offset = reinterpret_cast<std::uint64_t>(frame);
        if (dladdr(frame, &info) != 0 && info.dli_fname != nullptr) {
            object = info.dli_fname;
            object.remove_prefix(object.rfind('/') + 1);
            offset -= reinterpret_cast<std::uint64_t>(info.dli_fbase);
        }
        text += fmt::format("{}{}+{:#x}", text.empty() ? "" : " < ", object, offset);
    }
    return text;
}

void HeapPlaces::born(std::uint64_t address, const Frames& frames) noexcept {
    try {
        const std::lock_guard lock(mutex_);
        places_[address] = {frames, {}};
    } catch (const std::bad_alloc&) {
        // Then the story of this block is not told.
    }
}

void HeapPlaces::died(std::uint64_t address, const Frames& frames) noexcept {
    const std::lock_guard lock(mutex_);
    const auto known = places_.find(address);
    if (known != places_.end()) known->second.death = frames;
}

std::string HeapPlaces::story(std::uint64_t address) const {
    Places places;
    {
        const std::lock_guard lock(mutex_);
        const auto known = places_.find(address);
        if (known == places_.end()) return {};
        places = known->second;
    }
    std::string story = "allocated at " + text(places.birth);
    if (places.death[0] != nullptr) story += ", freed at " + text(places.death);
    return story;
}

}  // namespace frostline
