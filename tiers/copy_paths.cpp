// The table, and the methods of the CPU. Between device and swap the swap's queue is used: it is
// the slower end, which must never run dry. File-backed pmem goes through read() and write(), which
// keep its pages from counting as this process's memory; so it is never one end of a transfer.
#include "tiers/copy_paths.h"

#include <array>

namespace frostline {
namespace {

using enum CopyMethod;

//                                  to: device  dram         pmem         swap
constexpr std::array<std::array<CopyMethod, kTierKinds>, kTierKinds> kPaths{{
    /* from device */ {{queued_read, queued_read, staged_read, relayed}},
    /* from dram   */ {{queued_write, write, write, queued_write}},
    /* from pmem   */ {{staged_write, read, staged, staged_write}},
    /* from swap   */ {{relayed, queued_read, staged_read, staged_read}},
}};

}  // namespace

CopyMethod copy_method(TierKind source, TierKind target) noexcept {
    return kPaths[static_cast<std::size_t>(source)][static_cast<std::size_t>(target)];
}

Result<std::span<const std::byte>> copy_chunk(const CopyChunk& chunk) noexcept {
    if (chunk.method == write) {
        const std::span<const std::byte> bytes(
            chunk.source_tier->address(*chunk.source) + chunk.offset, chunk.size_bytes);
        FROSTLINE_TRY_VOID(chunk.target_tier->write(*chunk.target, chunk.offset, bytes));
        return bytes;
    }
    const std::span<std::byte> bytes =
        chunk.method == staged
            ? chunk.staging.first(chunk.size_bytes)
            : std::span(chunk.target_tier->address(*chunk.target) + chunk.offset, chunk.size_bytes);
    FROSTLINE_TRY_VOID(chunk.source_tier->read(*chunk.source, chunk.offset, bytes));
    if (chunk.method == staged) {
        FROSTLINE_TRY_VOID(chunk.target_tier->write(*chunk.target, chunk.offset, bytes));
    }
    return std::span<const std::byte>(bytes);
}

}  // namespace frostline
