// One mapping for all; chunks are opened and closed in it by their protection.
#include "allocator/heap/host_backing.h"

#include "allocator/heap/address_index.h"
#include "allocator/heap/slot_spans.h"
#include "tiers/memory_limit.h"
#include "tiers/numa_placement.h"

#include <sys/mman.h>

#include <bit>
#include <cerrno>
#include <new>

namespace frostline {
namespace {

// With so many times the addresses, growth finds a place whatever lies where.
constexpr std::uint64_t kLargePerByte = 4;

Error no_memory() noexcept {
    return Error(Errc::out_of_memory, 0, "no memory to keep account of a heap of host memory");
}

// What the system says when a limit is reached, too: for a heap all of it means that there is no
// more to be had.
Error no_room(int native, std::uint64_t size_bytes) noexcept {
    return Error(native == ENOMEM ? Errc::no_space : code_of_errno(native), native,
                 "the system gives a heap no {} bytes more (limits: ulimit -v and -d, "
                 "vm.overcommit_memory, vm.max_map_count)",
                 size_bytes);
}

Result<std::uint64_t> capacity_for(const HostBacking::Options& options) {
    const std::uint64_t smallest =
        options.pin == nullptr ? kSpanBytes : HostRegistration::kSmallestChunkBytes;
    if (!std::has_single_bit(options.chunk_bytes) || options.chunk_bytes < smallest) {
        return Error(Errc::invalid_argument, 0,
                     "chunks of {} bytes: give a power of two of at least {}", options.chunk_bytes,
                     smallest);
    }
    const std::uint64_t wanted =
        options.capacity_bytes == 0 ? memory_limit_bytes(options.root) : options.capacity_bytes;
    if (wanted < options.chunk_bytes) {
        return Error(Errc::invalid_argument, 0,
                     "a heap of {} bytes is less than one chunk of {}: raise its capacity", wanted,
                     options.chunk_bytes);
    }
    if (wanted > AddressIndex::kReach / (kLargePerByte + 1)) {
        return Error(Errc::invalid_argument, 0, "a heap of {} bytes: at most {} can be managed",
                     wanted, AddressIndex::kReach / (kLargePerByte + 1));
    }
    return wanted / options.chunk_bytes * options.chunk_bytes;
}

}  // namespace

Result<std::unique_ptr<HostBacking>> HostBacking::create(const Options& options) noexcept try {
    FROSTLINE_TRY(const std::uint64_t capacity_bytes, capacity_for(options));
    std::unique_ptr<HostBacking> backing(new HostBacking(options, capacity_bytes));
    FROSTLINE_TRY_VOID(backing->reserve_addresses());
    FROSTLINE_TRY_VOID(backing->place(options.numa_node));
    if (options.pin != nullptr) {
        FROSTLINE_TRY(backing->registration_, HostRegistration::create({.context = options.pin}));
    }
    return backing;
} catch (const std::bad_alloc&) {
    return no_memory();
}

HostBacking::HostBacking(const Options& options, std::uint64_t capacity_bytes) noexcept
    : calls_(options.calls), capacity_bytes_(capacity_bytes), chunk_bytes_(options.chunk_bytes) {}

// Fewer addresses will do where the process may have no more of them.
Result<void> HostBacking::reserve_addresses() noexcept {
    int refused = 0;
    std::uint64_t refused_bytes = 0;
    for (std::uint64_t times = kLargePerByte; times >= 1; times /= 2) {
        addresses_.large_bytes = capacity_bytes_ * times;
        addresses_.small_bytes = capacity_bytes_;
        const std::uint64_t size_bytes = addresses_.size_bytes() + chunk_bytes_;
        void* const memory = calls_->mmap(nullptr, size_bytes, PROT_NONE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            refused = errno;
            refused_bytes = size_bytes;
            continue;
        }
        reserved_ = {static_cast<std::byte*>(memory), size_bytes};
        const auto start = reinterpret_cast<std::uint64_t>(memory);
        addresses_.address = (start + chunk_bytes_ - 1) / chunk_bytes_ * chunk_bytes_;
        (void)calls_->madvise(memory, size_bytes, MADV_HUGEPAGE);  // without, it is slower to touch
        return ok();
    }
    return no_room(refused, refused_bytes);
}

Result<void> HostBacking::place(int numa_node) {
    if (numa_node == kNoNode) return ok();
    const NumaPlacement placement{NumaPlacement::Mode::preferred, {numa_node}};
    FROSTLINE_TRY(const Topology topology, Topology::create());
    FROSTLINE_TRY_VOID(check_placement(placement, topology, capacity_bytes_));
    return place_memory(*calls_, reserved_, placement.mode, placement.nodes);
}

HostBacking::~HostBacking() {
    registration_.reset();  // while the memory is there
    if (!reserved_.empty()) (void)calls_->munmap(reserved_.data(), reserved_.size());
}

Result<void> HostBacking::back(std::uint64_t address, std::uint64_t chunks) noexcept {
    const std::span<std::byte> memory = chunks_at(address, chunks);
    if (calls_->mprotect(memory.data(), memory.size(), PROT_READ | PROT_WRITE) != 0) {
        return no_room(errno, memory.size());
    }
    if (registration_ == nullptr) return ok();
    const Result<void> registered = registration_->add_whole(memory);
    if (!registered) (void)give_to_system(memory);
    return registered;
}

Result<void> HostBacking::unback(std::uint64_t address, std::uint64_t chunks) noexcept {
    const std::span<std::byte> memory = chunks_at(address, chunks);
    if (registration_ != nullptr) {
        // What stays registered stays resident, so the driver is asked twice.
        const Result<void> removed = registration_->remove(memory);
        if (!removed) FROSTLINE_TRY_VOID(registration_->remove(memory));
    }
    const Result<void> given = give_to_system(memory);
    if (!given && registration_ != nullptr) FROSTLINE_TRY_VOID(registration_->add_whole(memory));
    return given;
}

Result<void> HostBacking::give_to_system(std::span<std::byte> memory) noexcept {
    if (calls_->madvise(memory.data(), memory.size(), MADV_DONTNEED) != 0) {
        return Error(Errc::busy, errno,
                     "the system does not take back {} bytes of a heap, which uses them again "
                     "(memory that mlock or mlockall locked stays until it is unlocked)",
                     memory.size());
    }
    // Only so that whoever uses it all the same is stopped; it takes up nothing either way.
    (void)calls_->mprotect(memory.data(), memory.size(), PROT_NONE);
    return ok();
}

Result<void> HostBacking::map_window(std::uint64_t, std::span<const std::uint64_t>) noexcept {
    return Error(Errc::unsupported, 0, "host memory is not mapped a second time");
}

Result<void> HostBacking::unmap_window(std::uint64_t, std::uint64_t) noexcept {
    return Error(Errc::unsupported, 0, "host memory is not mapped a second time");
}

}  // namespace frostline
