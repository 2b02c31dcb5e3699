// One mapping, larger by a huge page, so that it has room for a start at one.
#include "tiers/huge_page_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

namespace frostline {

Result<HugePageMemory> HugePageMemory::map(const SystemCalls& calls,
                                           std::uint64_t size_bytes) noexcept {
    const std::uint64_t whole = (size_bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    const std::uint64_t mapped = whole + kHugePageBytes;
    void* const address =
        calls.mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
        return system_error(errno, "no memory for {} bytes of staging", size_bytes);
    }
    HugePageMemory memory;
    memory.calls_ = &calls;
    memory.mapped_ = {static_cast<std::byte*>(address), mapped};
    const auto start = reinterpret_cast<std::uint64_t>(address);
    const std::uint64_t skipped = (kHugePageBytes - start % kHugePageBytes) % kHugePageBytes;
    memory.bytes_ = memory.mapped_.subspan(skipped, whole);
    // A kernel without huge pages refuses, and does with small ones.
    (void)calls.madvise(memory.bytes_.data(), whole, MADV_HUGEPAGE);
    return memory;
}

HugePageMemory::HugePageMemory(HugePageMemory&& other) noexcept {
    *this = std::move(other);
}

HugePageMemory& HugePageMemory::operator=(HugePageMemory&& other) noexcept {
    std::swap(calls_, other.calls_);
    std::swap(mapped_, other.mapped_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

HugePageMemory::~HugePageMemory() {
    if (!mapped_.empty()) (void)calls_->munmap(mapped_.data(), mapped_.size());
}

}  // namespace frostline
