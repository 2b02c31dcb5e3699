// One map entry for each piece that the driver has accepted.
#include "tiers/host_registration.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <optional>

namespace frostline {
namespace {

Error no_memory() noexcept {
    return Error(Errc::out_of_memory, 0, "no memory to register host memory with a GPU");
}

}  // namespace

Result<std::unique_ptr<HostRegistration>> HostRegistration::create(
    const Options& options) noexcept {
    if (options.chunk_bytes == 0 || options.chunk_bytes % kSmallestChunkBytes != 0) {
        return Error(Errc::invalid_argument, 0,
                     "host memory is registered in multiples of {} bytes, not {}",
                     kSmallestChunkBytes, options.chunk_bytes);
    }
    FROSTLINE_TRY_VOID(options.context->driver().need({CudaFeature::host_registration}));
    auto* const made = new (std::nothrow) HostRegistration(options);
    if (made == nullptr) return no_memory();
    return std::unique_ptr<HostRegistration>(made);
}

HostRegistration::HostRegistration(const Options& options)
    : context_(options.context),
      chunk_bytes_(options.chunk_bytes),
      piece_bytes_(options.chunk_bytes) {}

HostRegistration::~HostRegistration() {
    for (const auto& [address, size_bytes] : pieces_) {
        (void)unregister_piece(const_cast<std::byte*>(address));
    }
}

// The driver's functions keep no last error: a refusal leaves nothing that a later call reports.
Result<void> HostRegistration::register_piece(std::span<std::byte> piece) const noexcept {
    const CudaDriver& driver = context_->driver();
    return context_->run([&] {
        return driver.check(
            "cuMemHostRegister",
            driver.cuMemHostRegister(piece.data(), piece.size(), CU_MEMHOSTREGISTER_PORTABLE));
    });
}

Result<void> HostRegistration::unregister_piece(std::byte* address) const noexcept {
    const CudaDriver& driver = context_->driver();
    return context_->run(
        [&] { return driver.check("cuMemHostUnregister", driver.cuMemHostUnregister(address)); });
}

HostRegistration::Piece HostRegistration::piece_from(const std::byte* address) const noexcept {
    const std::lock_guard lock(mutex_);
    const auto next = pieces_.upper_bound(address);
    if (next != pieces_.begin()) {
        const auto& [start, size_bytes] = *std::prev(next);
        const auto within = static_cast<std::uint64_t>(address - start);
        if (within < size_bytes) return {size_bytes - within, true};
    }
    if (next == pieces_.end()) return {UINT64_MAX, false};
    return {static_cast<std::uint64_t>(next->first - address), false};
}

std::uint64_t HostRegistration::registered_bytes() const noexcept {
    const std::lock_guard lock(mutex_);
    return registered_bytes_;
}

Result<void> HostRegistration::add(std::span<std::byte> memory) noexcept {
    const std::lock_guard lock(mutex_);
    const std::uint64_t piece_bytes = piece_bytes_;
    try {
        const Result<void> added = add_locked(memory);
        if (!added) {
            (void)remove_locked(memory);
            piece_bytes_ = piece_bytes;  // this memory is refused, and says nothing of other memory
        }
        return added;
    } catch (const std::bad_alloc&) {
        (void)remove_locked(memory);
        return no_memory();
    }
}

Result<void> HostRegistration::add_locked(std::span<std::byte> memory) {
    while (!memory.empty()) {
        const auto piece = memory.first(std::min<std::uint64_t>(memory.size(), piece_bytes_));
        const Result<void> added = add_piece(piece);
        if (added) {
            memory = memory.subspan(piece.size());
            continue;
        }
        const std::uint64_t half = piece.size() / 2 / kSmallestChunkBytes * kSmallestChunkBytes;
        if (half < kSmallestChunkBytes) return added;
        piece_bytes_ = half;
    }
    return ok();
}

Result<void> HostRegistration::add_piece(std::span<std::byte> piece) {
    const auto entry = pieces_.emplace(piece.data(), piece.size()).first;  // first: it may throw
    const Result<void> added = register_piece(piece);
    if (added) {
        registered_bytes_ += piece.size();
    } else {
        pieces_.erase(entry);
    }
    return added;
}

Result<void> HostRegistration::add_whole(std::span<std::byte> memory) noexcept {
    const std::lock_guard lock(mutex_);
    try {
        return add_piece(memory);
    } catch (const std::bad_alloc&) {
        return no_memory();
    }
}

Result<void> HostRegistration::remove(std::span<std::byte> memory) noexcept {
    const std::lock_guard lock(mutex_);
    return remove_locked(memory);
}

Result<void> HostRegistration::remove_locked(std::span<std::byte> memory) noexcept {
    std::optional<Error> first_error;
    auto each = pieces_.lower_bound(memory.data());
    while (each != pieces_.end() && each->first < memory.data() + memory.size()) {
        const auto [address, size_bytes] = *each;
        const Result<void> removed = unregister_piece(const_cast<std::byte*>(address));
        if (removed) {
            registered_bytes_ -= size_bytes;
            each = pieces_.erase(each);
        } else {
            if (!first_error) first_error = removed.error();
            ++each;
        }
    }
    if (first_error) return *first_error;
    return ok();
}

}  // namespace frostline
