// The paths themselves. Media that the host cannot address meet in a staging buffer; file-backed
// pmem goes through read(), which keeps its pages from counting as this process's memory.
#include "tiers/copy_paths.h"

#include <array>

namespace frostline {
namespace {

Result<std::span<const std::byte>> from_host_memory(const CopyChunk& chunk) noexcept {
    const std::span<const std::byte> bytes(
        chunk.source_tier->host_address(*chunk.source) + chunk.offset, chunk.size_bytes);
    FROSTLINE_TRY_VOID(chunk.target_tier->write(*chunk.target, chunk.offset, bytes));
    return bytes;
}

Result<std::span<const std::byte>> to_host_memory(const CopyChunk& chunk) noexcept {
    const std::span<std::byte> bytes(chunk.target_tier->host_address(*chunk.target) + chunk.offset,
                                     chunk.size_bytes);
    FROSTLINE_TRY_VOID(chunk.source_tier->read(*chunk.source, chunk.offset, bytes));
    return std::span<const std::byte>(bytes);
}

Result<std::span<const std::byte>> through_staging(const CopyChunk& chunk) noexcept {
    const std::span<std::byte> bytes = chunk.staging.first(chunk.size_bytes);
    FROSTLINE_TRY_VOID(chunk.source_tier->read(*chunk.source, chunk.offset, bytes));
    FROSTLINE_TRY_VOID(chunk.target_tier->write(*chunk.target, chunk.offset, bytes));
    return std::span<const std::byte>(bytes);
}

constexpr CopyPathEntry kNone{};
constexpr CopyPathEntry kFromHost{from_host_memory, false};
constexpr CopyPathEntry kToHost{to_host_memory, false};
constexpr CopyPathEntry kStaged{through_staging, true};

//                                  to: device  dram       pmem       swap
constexpr std::array<std::array<CopyPathEntry, kTierKinds>, kTierKinds> kPaths{{
    /* from device */ {{kNone, kNone, kNone, kNone}},
    /* from dram   */ {{kNone, kFromHost, kFromHost, kFromHost}},
    /* from pmem   */ {{kNone, kToHost, kStaged, kStaged}},
    /* from swap   */ {{kNone, kToHost, kStaged, kStaged}},
}};

}  // namespace

const CopyPathEntry& copy_path(TierKind source, TierKind target) noexcept {
    return kPaths[static_cast<std::size_t>(source)][static_cast<std::size_t>(target)];
}

}  // namespace frostline
