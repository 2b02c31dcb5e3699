// A range of reserved address space: which of it is free, and which free pages are resident still.
// At every moment the cached pages are free ones, and no page of the arena is resident that is
// neither in an extent nor cached.
#pragma once

#include "tiers/free_extents.h"
#include "tiers/host_registration.h"
#include "tiers/huge_page_memory.h"
#include "tiers/range_set.h"
#include "tiers/result.h"
#include "tiers/system_calls.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace frostline {

/// Keeps the books of address space that its owner has mapped. Not thread-safe: the tier that owns
/// it holds its lock. Ranges are offsets within the arena, in whole pages. Functions that are not
/// noexcept may throw std::bad_alloc.
///
/// With `huge_pages`, extents of 2 MiB and more start at a huge page, and the whole huge pages
/// inside an extent are advised as such for as long as it lives: so one never makes bytes resident
/// that nobody is charged for.
///
/// With `pins`, the arena consists of chunks. One is registered when an extent is first put there,
/// which makes all of it resident: what no extent has is cached. It stays registered while an
/// extent is in it, since a copy may be under way. As chunks are resident as a whole, and charged
/// so, `huge_pages` then means all huge pages of the arena, and extents lie where they fit.
class DramArena {
   public:
    struct Options {
        std::span<std::byte> memory;  ///< starts at a huge page
        const SystemCalls* calls = nullptr;
        std::vector<int> nodes;  ///< where its pages are to lie; empty: anywhere
        bool huge_pages = false;
        HostRegistration* pins = nullptr;  ///< nullptr: not pinned
        std::uint64_t pin_chunk_bytes = 0;
    };
    explicit DramArena(Options options);
    DramArena(DramArena&&) = default;
    /// Unregisters all that is registered. The owner unmaps the memory after that.
    ~DramArena();

    const std::vector<int>& nodes() const noexcept { return options_.nodes; }
    bool pinned() const noexcept { return options_.pins != nullptr; }
    bool contains(const std::byte* address) const noexcept {
        const std::span<std::byte> memory = options_.memory;
        return address >= memory.data() && address < memory.data() + memory.size();
    }
    std::byte* address(std::uint64_t offset) const noexcept {
        return options_.memory.data() + offset;
    }
    std::uint64_t offset(const std::byte* address) const noexcept {
        return static_cast<std::uint64_t>(address - options_.memory.data());
    }

    /// The free range that an extent of `size_bytes` would be given; nothing is changed.
    std::optional<Range> find(std::uint64_t size_bytes) const noexcept;
    /// What becomes resident in taking a range, whole chunks where it is pinned.
    Range footprint(const Range& range) const noexcept;
    /// How many bytes of it are not resident now.
    std::uint64_t growth_bytes(const Range& range) const noexcept;
    /// Takes what find() found. Errors: those of HostRegistration::add(); then the arena gives
    /// nothing any more, and what was registered is so only until it is free and trimmed.
    Result<void> take(const Range& range);
    /// Makes a taken range free again; its pages stay resident, as cached. Ends the program if any
    /// of it is free already or lies outside.
    void give(const Range& range);

    std::uint64_t cached_bytes() const noexcept { return cached_.size_bytes(); }
    /// Gives at least `size_bytes` of cached pages that lie outside of `keep` back to the system,
    /// or all that can be; how many it were. Highest addresses first: best fit reuses the lowest
    /// ones first. Errors: what madvise() says; what was given back before stays so.
    Result<std::uint64_t> trim(std::uint64_t size_bytes, const Range& keep);
    /// Gives back cached pages that are no longer wanted. Pinned ones stay.
    void drop(const Range& range);

    /// Registers the first chunk, to see whether that works; it is cached then.
    Result<void> try_pinning();

   private:
    std::span<std::byte> bytes(const Range& range) const noexcept;
    Result<std::uint64_t> trim_pages(std::uint64_t size_bytes, const Range& window);
    Result<void> give_back(const Range& range);
    bool advise_huge_pages(const Range& range, int advice) const noexcept;
    std::size_t chunk_of(std::uint64_t offset) const noexcept;
    Range chunk(std::size_t index) const noexcept;
    Result<void> pin(const Range& range);
    Result<std::uint64_t> trim_chunks(std::uint64_t size_bytes, const Range& keep);

    Options options_;
    FreeExtents free_;
    RangeSet cached_;
    std::vector<bool> registered_;  // by chunk
    bool closed_ = false;           // a registration was refused
};

}  // namespace frostline
