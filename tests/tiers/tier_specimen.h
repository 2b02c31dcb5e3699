// One tier of every kind to try things on, and bytes that are worth checking.
#pragma once

#include "tests/tiers/faulty_system_calls.h"
#include "tests/tiers/scratch_folder.h"
#include "tests/tiers/seed.h"
#include "tests/tiers/specimen_gpu.h"
#include "tiers/device_tier.h"
#include "tiers/dram_tier.h"
#include "tiers/page.h"
#include "tiers/pmem_tier.h"
#include "tiers/swap_tier.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <ostream>
#include <span>
#include <vector>

namespace frostline {

using Bytes = std::vector<std::byte>;

inline Bytes random_bytes(std::mt19937_64& random, std::uint64_t size_bytes) {
    Bytes bytes(size_bytes);
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
        const std::uint64_t word = random();
        std::memcpy(&bytes[at], &word, std::min(sizeof word, bytes.size() - at));
    }
    return bytes;
}

/// Sizes as they come: mostly odd and small, some in pages, a few large.
inline std::uint64_t random_size(std::mt19937_64& random, std::uint64_t max_bytes) {
    const std::uint64_t bound = max_bytes >> between(random, 0, 12);
    const std::uint64_t size = between(random, 1, std::max<std::uint64_t>(bound, 1));
    const bool whole_pages = between(random, 0, 3) == 0;
    return whole_pages ? std::min(round_up_to_page(size), max_bytes) : size;
}

/// The specimens of pmem on real media exist where the environment names them: FROSTLINE_TEST_PMEM
/// is a folder on a DAX file system, FROSTLINE_TEST_DEVDAX a DAX device whose content may go. Of
/// swap: at its best, page by page, over two folders, and with what stands in for io_uring and for
/// O_DIRECT.
enum class Specimen : std::uint8_t {
    dram,
    dram_small_pages,
    dram_bound,   ///< to the nodes that there are
    dram_pinned,  ///< for the GPU
    device,       ///< a GPU's memory; the emulated one's, in chunks as small as pages
    device_in_chunks,
    pmem,
    pmem_for_gpu,  ///< registered with the emulated driver, where it is persistent memory
    pmem_dax,
    pmem_device,
    swap,
    swap_by_pages,
    swap_striped,
    swap_ordinary,
    swap_cached,
};

inline const char* dax_device() {
    return std::getenv("FROSTLINE_TEST_DEVDAX");
}

/// The specimens, and with them files on real persistent memory if there is any.
inline std::vector<Specimen> with_dax_files(std::vector<Specimen> specimens) {
    if (std::getenv("FROSTLINE_TEST_PMEM") != nullptr) specimens.push_back(Specimen::pmem_dax);
    return specimens;
}

/// As above, and with a device, too.
inline std::vector<Specimen> with_real_pmem(std::vector<Specimen> specimens) {
    specimens = with_dax_files(std::move(specimens));
    if (dax_device() != nullptr) specimens.push_back(Specimen::pmem_device);
    return specimens;
}

inline ScratchFolder::On place_of(Specimen specimen, ScratchFolder::On otherwise) {
    return specimen == Specimen::pmem_dax ? ScratchFolder::On::dax : otherwise;
}

inline std::ostream& operator<<(std::ostream& out, Specimen specimen) {
    constexpr std::array<const char*, 15> kNames{
        "dram",         "dram_small_pages", "dram_bound", "dram_pinned",
        "device",       "device_in_chunks", "pmem",       "pmem_for_gpu",
        "pmem_dax",     "pmem_device",      "swap",       "swap_by_pages",
        "swap_striped", "swap_ordinary",    "swap_cached"};
    return out << kNames[static_cast<std::size_t>(specimen)];
}

inline bool is_dram(Specimen specimen) {
    return specimen < Specimen::device;
}

inline bool is_device(Specimen specimen) {
    return specimen == Specimen::device || specimen == Specimen::device_in_chunks;
}

inline bool is_swap(Specimen specimen) {
    return specimen >= Specimen::swap;
}

/// This machine's, read once.
inline const Topology& this_machine() {
    static const Topology topology = *Topology::create();
    return topology;
}

inline std::vector<int> nodes_with_memory() {
    std::vector<int> nodes;
    for (const NumaNode& each : this_machine().nodes()) {
        if (each.memory_bytes > 0) nodes.push_back(each.id);
    }
    return nodes;
}

/// Its calls go through the fault layer.
inline DramTier::Options dram_options(Specimen specimen, std::uint64_t capacity_bytes, TierId id) {
    DramTier::Options options{.id = id,
                              .capacity_bytes = capacity_bytes,
                              .calls = &faulty_system_calls(),
                              .topology = &this_machine()};
    if (specimen == Specimen::dram_small_pages) options.huge_pages = DramTier::HugePages::never;
    if (specimen == Specimen::dram_bound) {
        options.numa = {NumaPlacement::Mode::bind, nodes_with_memory()};
    }
    if (specimen == Specimen::dram_pinned) {
        options.pin_for_device = &SpecimenGpu::registration();
    }
    return options;
}

/// A fresh tier in `folder`. Its calls go through the fault layer.
inline Result<std::unique_ptr<Tier>> make_tier(Specimen specimen, const ScratchFolder& folder,
                                               std::uint64_t capacity_bytes, TierId id = TierId{}) {
    const SystemCalls* const calls = &faulty_system_calls();
    switch (specimen) {
        case Specimen::dram:
        case Specimen::dram_small_pages:
        case Specimen::dram_bound:
        case Specimen::dram_pinned: {
            FROSTLINE_TRY(auto tier, DramTier::create(dram_options(specimen, capacity_bytes, id)));
            return std::unique_ptr<Tier>(std::move(tier));
        }
        case Specimen::device:
        case Specimen::device_in_chunks: {
            FROSTLINE_TRY(auto tier, DeviceTier::create(
                                         {.id = id,
                                          .context = SpecimenGpu::context(),
                                          .capacity_bytes = capacity_bytes,
                                          .chunk_bytes = specimen == Specimen::device
                                                             ? std::uint64_t{16} << 20
                                                             : 2 * SpecimenGpu::granularity_bytes(),
                                          .registered = &SpecimenGpu::registration()}));
            return std::unique_ptr<Tier>(std::move(tier));
        }
        case Specimen::pmem_device: {
            FROSTLINE_TRY(auto tier, PmemTier::create({id, dax_device(), capacity_bytes, calls}));
            return std::unique_ptr<Tier>(std::move(tier));
        }
        case Specimen::pmem_for_gpu: {
            Emulator::get().ensure(kSpecimenMachine);
            FROSTLINE_TRY(
                auto tier,
                PmemTier::create({.id = id,
                                  .path = folder.file("pmem-" + std::to_string(index_of(id))),
                                  .size_bytes = capacity_bytes,
                                  .calls = calls,
                                  .registration = &Emulator::get().registration()}));
            return std::unique_ptr<Tier>(std::move(tier));
        }
        case Specimen::pmem_dax:
        case Specimen::pmem: {
            const std::string path = folder.file("pmem-" + std::to_string(index_of(id)));
            FROSTLINE_TRY(auto tier, PmemTier::create({id, path, capacity_bytes, calls}));
            return std::unique_ptr<Tier>(std::move(tier));
        }
        default: {
            SwapTier::Options options{
                .id = id, .places = {folder.path()}, .size_bytes = capacity_bytes, .calls = calls};
            if (specimen == Specimen::swap_by_pages) {
                options.growth_bytes = 3 * kPageBytes;
                options.block_bytes = kPageBytes;
                options.queue_depth = 4;
                options.keep_ns = 0;  // so that holes are punched all the time
            }
            if (specimen == Specimen::swap_striped) options.places.push_back(folder.path());
            options.ring = specimen != Specimen::swap_ordinary;
            options.direct = specimen != Specimen::swap_cached;
            FROSTLINE_TRY(auto tier, SwapTier::create(options));
            return std::unique_ptr<Tier>(std::move(tier));
        }
    }
}

/// As above, where it cannot fail.
inline std::unique_ptr<Tier> tier_of(Specimen specimen, const ScratchFolder& folder,
                                     std::uint64_t capacity_bytes, TierId id = TierId{}) {
    auto tier = make_tier(specimen, folder, capacity_bytes, id);
    if (!tier) {
        ADD_FAILURE() << tier.error().message();
        std::abort();
    }
    return *std::move(tier);
}

inline Bytes read_all(Tier& tier, const Extent& extent) {
    Bytes bytes(extent.length_bytes);
    const Result<void> done = tier.read(extent, 0, bytes);
    EXPECT_TRUE(done.has_value()) << done.error().message();
    return bytes;
}

}  // namespace frostline
