// Copies into and out of the mapping, and what makes them durable.
#include "tiers/pmem_tier.h"

#include "tiers/page.h"

#include <libpmem.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

namespace frostline {
namespace {

// libpmem can be told to take any mapping for persistent memory, and then says so of a file, too.
bool is_real_pmem(const PmemFile& file) {
    const char* const forced = std::getenv("PMEM_IS_PMEM_FORCE");
    return file.is_pmem() && (forced == nullptr || std::string_view(forced) != "1");
}

}  // namespace

Result<std::unique_ptr<PmemTier>> PmemTier::create(const Options& options) noexcept {
    try {
        FROSTLINE_TRY(PmemFile file,
                      PmemFile::open({options.path, options.size_bytes, options.calls}));
        return std::unique_ptr<PmemTier>(new PmemTier(options, std::move(file)));
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "pmem tier: no memory for its own tables");
    }
}

PmemTier::PmemTier(const Options& options, PmemFile file)
    : calls_(options.calls),
      file_(std::move(file)),
      info_{.id = options.id,
            .kind = TierKind::pmem,
            .location = options.path,
            .label = is_real_pmem(file_) ? Label::real : Label::emulated,
            .capacity_bytes = (options.size_bytes > 0 ? options.size_bytes : file_.size_bytes()) /
                              kPageBytes * kPageBytes,
            .granularity_bytes = kPageBytes,
            .host_addressable = true,
            .durable = true},
      free_(info_.capacity_bytes) {}

void PmemTier::remove_created_file() noexcept {
    const std::lock_guard lock(mutex_);
    file_.remove_if_created();
}

Result<Extent> PmemTier::reserve(std::uint64_t size_bytes) noexcept {
    if (size_bytes == 0) return Error(Errc::invalid_argument, 0, "pmem tier: reserve of 0 bytes");
    if (!meter_.open()) {
        return Error(Errc::closed, 0, "pmem tier '{}': closed after a failure", info_.location);
    }
    try {
        const std::lock_guard lock(mutex_);
        const std::uint64_t charged = round_up_to_page(size_bytes);
        const std::optional<std::uint64_t> offset = free_.take(charged);
        if (!offset) {
            return Error(Errc::no_space, 0, "pmem tier '{}': {} bytes do not fit, {} of {} in use",
                         info_.location, size_bytes, meter_.used_bytes(), info_.capacity_bytes);
        }
        meter_.add(charged);
        return Extent{info_.id, *offset, size_bytes};
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "pmem tier: no memory for its own tables");
    }
}

void PmemTier::release(const Extent& extent) noexcept {
    const std::lock_guard lock(mutex_);
    const std::uint64_t charged = round_up_to_page(extent.length_bytes);
    free_.give(extent.offset, charged);
    meter_.subtract(charged);
}

Result<void> PmemTier::write(const Extent& extent, std::uint64_t offset,
                             std::span<const std::byte> bytes) noexcept {
    if (bytes.empty()) return ok();  // its address may be null, which memcpy forbids
    std::byte* const to = host_address(extent) + offset;
    if (file_.is_pmem()) {
        (void)pmem_memcpy(to, bytes.data(), bytes.size(), PMEM_F_MEM_NODRAIN);
    } else {
        std::memcpy(to, bytes.data(), bytes.size());
    }
    return ok();
}

Result<void> PmemTier::read(const Extent& extent, std::uint64_t offset,
                            std::span<std::byte> bytes) noexcept {
    if (bytes.empty()) return ok();  // its address may be null, which memcpy forbids
    std::byte* const from = host_address(extent) + offset;
    std::memcpy(bytes.data(), from, bytes.size());
    leave_process(from, bytes.size());
    return ok();
}

Result<void> PmemTier::fence(std::span<const Extent> extents) noexcept {
    if (file_.is_pmem()) {
        pmem_drain();
        return ok();
    }
    for (const Extent& extent : extents) {
        std::byte* const start = host_address(extent);
        if (calls_->pmem_msync(start, extent.length_bytes) != 0) {
            meter_.close();
            return system_error(errno, "pmem tier '{}': {} bytes could not be made durable",
                                info_.location, extent.length_bytes);
        }
        leave_process(start, extent.length_bytes);
    }
    return ok();
}

std::byte* PmemTier::host_address(const Extent& extent) const noexcept {
    return file_.address() + extent.offset;
}

Result<std::unique_ptr<TransferQueue>> PmemTier::open_queue() noexcept {
    return std::unique_ptr<TransferQueue>();
}

// A file that stands in for pmem lies in the page cache, and its mapped pages would count as this
// process's memory: what left for a lower tier must really leave.
void PmemTier::leave_process(std::byte* address, std::uint64_t size_bytes) const noexcept {
    if (file_.is_pmem()) return;
    const std::uint64_t start = reinterpret_cast<std::uint64_t>(address) / kPageBytes * kPageBytes;
    const std::uint64_t end =
        round_up_to_page(reinterpret_cast<std::uint64_t>(address) + size_bytes);
    // Only advice: where it is refused the pages stay until the kernel needs them.
    (void)calls_->madvise(reinterpret_cast<void*>(start), end - start, MADV_DONTNEED);
}

}  // namespace frostline
