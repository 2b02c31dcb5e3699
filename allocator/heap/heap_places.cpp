// Return addresses of the C library, told by object and offset.
#include "allocator/heap/heap_places.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <new>

namespace frostline {
namespace {

constexpr int kDeepest = 32;

struct Range {
    std::uint64_t inside = 0;  // the address that is looked for
    std::uint64_t start = 0;
    std::uint64_t end = 0;
};

// The object around `inside`, unless it is the program, which the loader names first and by "".
int find_library(dl_phdr_info* object, std::size_t, void* wanted) {
    auto& range = *static_cast<Range*>(wanted);
    if (object->dlpi_name == nullptr || object->dlpi_name[0] == '\0') return 0;
    std::uint64_t start = UINT64_MAX;
    std::uint64_t end = 0;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const auto& segment = object->dlpi_phdr[i];
        if (segment.p_type != PT_LOAD) continue;
        start = std::min<std::uint64_t>(start, object->dlpi_addr + segment.p_vaddr);
        end = std::max<std::uint64_t>(end, object->dlpi_addr + segment.p_vaddr + segment.p_memsz);
    }
    if (range.inside < start || range.inside >= end) return 0;
    range.start = start;
    range.end = end;
    return 1;
}

std::string name_of(void* frame) {
    Dl_info info{};
    std::string_view object = "?";
    auto offset = reinterpret_cast<std::uint64_t>(frame);
    if (dladdr(frame, &info) != 0 && info.dli_fname != nullptr) {
        object = info.dli_fname;
        object.remove_prefix(object.rfind('/') + 1);
        offset -= reinterpret_cast<std::uint64_t>(info.dli_fbase);
    }
    return fmt::format("{}+{:#x}", object, offset);
}

}  // namespace

HeapPlaces::HeapPlaces() noexcept {
    std::array<void*, 1> first{};
    (void)backtrace(first.data(), 1);
    Range range{reinterpret_cast<std::uint64_t>(&find_library)};
    dl_iterate_phdr(find_library, &range);
    own_start_ = range.start;
    own_end_ = range.end;
}

[[gnu::noinline]] HeapPlaces::Frames HeapPlaces::here() const noexcept {
    constexpr int kSkipped = 3;  // this call, born() or died(), and the heap's note of it
    std::array<void*, kDeepest> stack{};
    const int depth = backtrace(stack.data(), kDeepest);
    Frames frames{};
    std::size_t known = 0;
    for (int i = kSkipped; i < depth && known < kFrames; ++i) {
        void* const frame = stack[static_cast<std::size_t>(i)];
        const auto address = reinterpret_cast<std::uint64_t>(frame);
        if (address < own_start_ || address >= own_end_) frames[known++] = frame;
    }
    return frames;
}

[[gnu::noinline]] void HeapPlaces::born(std::uint64_t address) noexcept {
    const Frames frames = here();
    try {
        const std::lock_guard lock(mutex_);
        places_[address] = {frames, {}};
    } catch (const std::bad_alloc&) {
        // Then the story of this block is not told.
    }
}

[[gnu::noinline]] void HeapPlaces::died(std::uint64_t address) noexcept {
    const Frames frames = here();
    const std::lock_guard lock(mutex_);
    const auto known = places_.find(address);
    if (known != places_.end()) known->second.death = frames;
}

HeapPlaces::Places HeapPlaces::of(std::uint64_t address) const noexcept {
    const std::lock_guard lock(mutex_);
    const auto known = places_.find(address);
    return known == places_.end() ? Places{} : known->second;
}

std::string HeapPlaces::text(std::string_view what, const Frames& frames, std::size_t room) {
    const auto count =
        static_cast<std::size_t>(std::find(frames.begin(), frames.end(), nullptr) - frames.begin());
    if (count == 0) return {};
    std::string text(what);
    for (std::size_t i = 0; i < count; ++i) {
        const std::string call = (i == 0 ? " " : " < ") + name_of(frames[i]);
        const std::string others = fmt::format("{}{} more", i == 0 ? " " : " < ", count - i);
        const std::size_t reserve = i + 1 < count ? others.size() + 2 : 0;
        if (text.size() + call.size() + reserve > room) {
            if (text.size() + others.size() > room) return {};
            return text + others;
        }
        text += call;
    }
    return text;
}

// Half of the room for each of the two, but for what the first does not need.
std::string HeapPlaces::story(const Places& places, std::size_t room) {
    const bool freed = places.death[0] != nullptr;
    std::string story = text("allocated at", places.birth, freed ? room / 2 : room);
    if (!freed) return story;
    const std::string_view words = story.empty() ? "freed at" : ", freed at";
    return story + text(words, places.death, room - story.size());
}

}  // namespace frostline
