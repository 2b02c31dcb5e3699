// Copies into and out of the mapping, and what makes them durable.
#include "tiers/pmem_tier.h"

#include "tiers/page.h"

#include <fmt/format.h>
#include <libpmem.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace frostline {
namespace {

std::string access_of(const PmemFile& file) {
    switch (file.medium()) {
        case PmemMedium::devdax:
            return "devdax, non-temporal copies";
        case PmemMedium::fsdax:
            return "fsdax, non-temporal copies";
        case PmemMedium::file:
            break;
    }
    return file.is_pmem() ? "file, non-temporal copies" : "file, msync";
}

std::string fallback_of(const PmemFile& file, const std::string& path) {
    if (file.medium() != PmemMedium::file) return {};
    return file.is_pmem() ? path + " is taken for persistent memory by PMEM_IS_PMEM_FORCE"
                          : path + " is not on a DAX file system: msync makes it durable";
}

}  // namespace

Result<std::unique_ptr<PmemTier>> PmemTier::create(const Options& options) noexcept {
    try {
        FROSTLINE_TRY(PmemFile file,
                      PmemFile::open({options.path, options.size_bytes, options.calls,
                                      options.keep_content, options.allocate}));
        std::unique_ptr<PmemTier> tier(new PmemTier(options, std::move(file)));
        tier->register_for_gpu();
        return tier;
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "pmem tier: no memory for its own tables");
    }
}

PmemTier::PmemTier(const Options& options, PmemFile file)
    : calls_(options.calls),
      registration_(options.registration),
      file_(std::move(file)),
      info_{.id = options.id,
            .kind = TierKind::pmem,
            .location = options.path,
            .label = file_.medium() == PmemMedium::file ? Label::emulated : Label::real,
            .capacity_bytes = (options.size_bytes > 0 ? options.size_bytes : file_.size_bytes()) /
                              kPageBytes * kPageBytes,
            .granularity_bytes = kPageBytes,
            .host_addressable = true,
            .durable = true,
            .numa_node = options.numa_node,
            .access = access_of(file_),
            .fallback = fallback_of(file_, options.path)},
      writers_(options.max_writers),
      writers_are_given_(options.max_writers > 0),
      free_(info_.capacity_bytes) {}

PmemTier::~PmemTier() {
    if (info_.gpu_addressable) {
        (void)registration_->remove({file_.address(), info_.capacity_bytes});
    }
}

// Asked once. A file's pages are not registered: the kernel may write them back at any time, and
// they would count as this process's memory.
void PmemTier::register_for_gpu() noexcept {
    if (registration_ == nullptr || !file_.is_pmem()) return;
    const Result<void> added = registration_->add({file_.address(), info_.capacity_bytes});
    info_.gpu_addressable = added.has_value();
    if (added) return;
    const char* const separator = info_.fallback.empty() ? "" : "; ";
    try {
        info_.fallback +=
            fmt::format("{}the GPU's copies are staged: {}", separator, added.error().message());
    } catch (const std::bad_alloc&) {
        // It works as well without being told.
    }
}

void PmemTier::remove_created_file() noexcept {
    const std::lock_guard lock(mutex_);
    file_.remove_if_created();
}

Result<Extent> PmemTier::reserve(std::uint64_t size_bytes) noexcept {
    if (size_bytes == 0) return Error(Errc::invalid_argument, 0, "pmem tier: reserve of 0 bytes");
    if (!meter_.open()) {
        return Error(Errc::closed, meter_.error(), "pmem tier '{}': closed after a failure",
                     info_.location);
    }
    try {
        std::unique_lock lock(mutex_);
        const std::uint64_t charged = round_up_to_page(size_bytes);
        const std::optional<std::uint64_t> offset = free_.find(charged);
        if (!offset) {
            return Error(Errc::no_space, 0, "pmem tier '{}': {} bytes do not fit, {} of {} in use",
                         info_.location, size_bytes, meter_.used_bytes(), info_.capacity_bytes);
        }
        const RangeSet unscrubbed = first_use_of({*offset, *offset + charged});
        (void)free_.take(charged);  // what find() found; last, because it cannot fail
        meter_.add(charged);
        lock.unlock();
        scrub(unscrubbed);
        return Extent{info_.id, *offset, size_bytes};
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "pmem tier: no memory for its own tables");
    }
}

// What of the room nobody in this process has had yet; the caller scrubs it. If the room is not
// taken after all, it stays unscrubbed, so nothing may fail in between. Throws std::bad_alloc, and
// then nothing has changed.
RangeSet PmemTier::first_use_of(const Range& room) {
    RangeSet unscrubbed;
    if (!file_.needs_scrubbing()) return unscrubbed;
    unscrubbed.add(room);
    Range left = room;
    while (const auto had = scrubbed_.last_in(left)) {
        unscrubbed.remove(*had);
        left.end = had->start;
    }
    scrubbed_.add(room);
    return unscrubbed;
}

void PmemTier::scrub(const RangeSet& ranges) noexcept {
    if (ranges.size_bytes() == 0) return;
    Range left{0, info_.capacity_bytes};
    while (const auto range = ranges.last_in(left)) {
        left.end = range->start;
        std::byte* const start = file_.address() + range->start;
        if (file_.is_pmem()) {
            (void)calls_->pmem_memset(start, 0, range->size_bytes(),
                                      PMEM_F_MEM_NONTEMPORAL | PMEM_F_MEM_NODRAIN);
        } else {
            std::memset(start, 0, range->size_bytes());
            leave_process(start, range->size_bytes());
        }
    }
    // Otherwise these zeros could overtake what another thread is about to write.
    if (file_.is_pmem()) calls_->pmem_drain();
}

void PmemTier::release(const Extent& extent) noexcept {
    {
        const std::lock_guard lock(mutex_);
        const std::uint64_t charged = round_up_to_page(extent.length_bytes);
        try {
            free_.give(extent.offset, charged);
            meter_.subtract(charged);
        } catch (const std::bad_alloc&) {
            // The room stays taken: without memory it cannot be noted as free.
        }
    }
    // Only now is it known to be an extent of this tier. The next owner loses nothing by it: the
    // bytes of a file are in the page cache.
    leave_process(address(extent), extent.length_bytes);
}

// libpmem chooses between non-temporal stores (from PMEM_MOVNT_THRESHOLD on, 256 bytes unless set)
// and ordinary ones, which it flushes. Either way fence() drains, once for all that was written.
Result<void> PmemTier::write(const Extent& extent, std::uint64_t offset,
                             std::span<const std::byte> bytes) noexcept {
    if (bytes.empty()) return ok();  // its address may be null, which memcpy forbids
    std::byte* const to = address(extent) + offset;
    const WriterLimit::Place place(writers_);
    if (file_.is_pmem()) {
        (void)calls_->pmem_memcpy(to, bytes.data(), bytes.size(), PMEM_F_MEM_NODRAIN);
    } else {
        std::memcpy(to, bytes.data(), bytes.size());
    }
    return ok();
}

Result<void> PmemTier::read(const Extent& extent, std::uint64_t offset,
                            std::span<std::byte> bytes) noexcept {
    if (bytes.empty()) return ok();  // its address may be null, which memcpy forbids
    std::byte* const from = address(extent) + offset;
    std::memcpy(bytes.data(), from, bytes.size());
    leave_process(from, bytes.size());
    return ok();
}

Result<void> PmemTier::fence(std::span<const Extent> extents) noexcept {
    if (file_.is_pmem()) {
        calls_->pmem_drain();
        return ok();
    }
    // The kernel tells of a failed write-back once, to whoever syncs next, and takes the pages for
    // clean from then on: after one failure no success means anything. One at a time, so that
    // nobody succeeds beside the one who is told.
    const std::lock_guard lock(sync_mutex_);
    for (const Extent& extent : extents) {
        if (!meter_.open()) {
            return Error(Errc::closed, meter_.error(),
                         "pmem tier '{}': after a failure nothing is durable", info_.location);
        }
        std::byte* const start = address(extent);
        if (calls_->pmem_msync(start, extent.length_bytes) != 0) {
            const int error = errno;
            meter_.close(error);
            return system_error(error, "pmem tier '{}': {} bytes could not be made durable",
                                info_.location, extent.length_bytes);
        }
        leave_process(start, extent.length_bytes);
    }
    return ok();
}

std::byte* PmemTier::address(const Extent& extent) const noexcept {
    return file_.address() + extent.offset;
}

Result<std::unique_ptr<TransferQueue>> PmemTier::open_queue() noexcept {
    return std::unique_ptr<TransferQueue>();
}

void PmemTier::calibrated(const TierSpeed& speed) noexcept {
    info_.speed = speed;
    meter_.restart_peak();
    const bool measured = speed.write_bytes_per_s > 0;
    if (measured && !writers_are_given_) writers_.set(speed.best_writers);
}

Result<std::span<std::byte>> PmemTier::map_in_place(const Extent& extent) noexcept {
    const std::uint64_t capacity = info_.capacity_bytes;
    if (extent.tier != info_.id || extent.length_bytes > capacity ||
        extent.offset > capacity - extent.length_bytes) {
        return Error(Errc::invalid_argument, 0, "pmem tier '{}': {} bytes at {} are not its own",
                     info_.location, extent.length_bytes, extent.offset);
    }
    return std::span(address(extent), extent.length_bytes);
}

// On a file the msync of fence() takes the whole extent.
void PmemTier::flush_in_place(std::span<const std::byte> range) noexcept {
    if (file_.is_pmem()) calls_->pmem_flush(range.data(), range.size());
}

void PmemTier::unmap_in_place(const Extent& extent) noexcept {
    leave_process(address(extent), extent.length_bytes);
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
