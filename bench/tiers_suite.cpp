// Copies through the copy engine, each against a bare loop over the same medium in the same
// directory, alternated: memcpy into DRAM, pmem_memcpy into a mapping on tmpfs (libpmem's real
// paths, forced, hence `emulated`), and write and read of a file.
#include "bench/suite.h"
#include "tiers/copy_engine.h"
#include "tiers/dram_tier.h"
#include "tiers/pmem_tier.h"
#include "tiers/swap_tier.h"

#include <libpmem.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace frostline::bench {
namespace {

constexpr int kRepetitions = 7;
constexpr std::uint64_t kBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kChunkBytes = std::uint64_t{4} << 20;
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

template <class T>
T expect(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().message());
    if constexpr (!std::is_void_v<T>) return std::move(*result);
}

double gib_per_second(const std::function<void()>& work) {
    return static_cast<double>(kBytes) / kGib / seconds(work);
}

// The tiers of one run, each with an extent of kBytes whose pages have been touched.
struct Media {
    std::unique_ptr<DramTier> dram;
    std::unique_ptr<PmemTier> pmem;
    std::unique_ptr<SwapTier> swap;
    std::unique_ptr<CopyEngine> copies;
    Extent dram_extent, other_dram_extent, pmem_extent, swap_extent;

    Media() {
        const std::string unique = "frostline-bench-" + std::to_string(getpid());
        dram = expect(DramTier::create({.id = TierId{0}, .capacity_bytes = 2 * kBytes}));
        pmem = expect(PmemTier::create(
            {.id = TierId{1}, .path = "/dev/shm/" + unique, .size_bytes = kBytes}));
        const char* const directory = std::getenv("TMPDIR");
        swap = expect(SwapTier::create({.id = TierId{2},
                                        .directory = directory != nullptr ? directory : "/tmp",
                                        .size_bytes = kBytes,
                                        .growth_bytes = kBytes}));
        copies = expect(CopyEngine::create({.chunk_bytes = kChunkBytes}));
        dram_extent = expect(dram->reserve(kBytes));
        other_dram_extent = expect(dram->reserve(kBytes));
        pmem_extent = expect(pmem->reserve(kBytes));
        swap_extent = expect(swap->reserve(kBytes));
        std::memset(address(dram_extent), 1, kBytes);
        std::memset(address(other_dram_extent), 2, kBytes);
    }

    std::byte* address(const Extent& extent) const { return dram->host_address(extent); }

    double copy(Tier& source, const Extent& from, Tier& target, const Extent& to) const {
        return gib_per_second([&] {
            std::promise<Result<void>> done;
            CopyRequest request{
                &source, from,
                &target, to,
                false,   [&](const CopyOutcome& outcome) {
                                    done.set_value(outcome.status); }};
            expect(copies->submit(std::move(request)));
            expect(done.get_future().get());
        });
    }
};

// Calls `work` for each chunk of the whole.
void in_chunks(const std::function<void(std::uint64_t offset)>& work) {
    for (std::uint64_t offset = 0; offset < kBytes; offset += kChunkBytes) work(offset);
}

Row pmem_row(const Media& media, bool write) {
    std::byte* const memory = media.address(media.dram_extent);
    std::byte* const mapping = media.pmem->host_address(media.pmem_extent);
    const auto bare = [&] {
        return gib_per_second([&] {
            in_chunks([&](std::uint64_t offset) {
                if (write) {
                    (void)pmem_memcpy(mapping + offset, memory + offset, kChunkBytes,
                                      PMEM_F_MEM_NODRAIN);
                } else {
                    std::memcpy(memory + offset, mapping + offset, kChunkBytes);
                }
            });
            if (write) pmem_drain();
        });
    };
    const auto ours = [&] {
        return write ? media.copy(*media.dram, media.dram_extent, *media.pmem, media.pmem_extent)
                     : media.copy(*media.pmem, media.pmem_extent, *media.dram, media.dram_extent);
    };
    return compare_row("tiers", write ? "dram to pmem" : "pmem to dram", "GiB/s",
                       write ? "pmem_memcpy and drain, tmpfs" : "memcpy, tmpfs", "emulated",
                       alternate(kRepetitions, ours, bare));
}

Row swap_row(const Media& media, bool write) {
    std::byte* const memory = media.address(media.dram_extent);
    // The same file through the tier itself, without engine and worker.
    const auto bare = [&] {
        return gib_per_second([&] {
            in_chunks([&](std::uint64_t offset) {
                const std::span<std::byte> chunk(memory + offset, kChunkBytes);
                expect(write ? media.swap->write(media.swap_extent, offset, chunk)
                             : media.swap->read(media.swap_extent, offset, chunk));
            });
        });
    };
    const auto ours = [&] {
        return write ? media.copy(*media.dram, media.dram_extent, *media.swap, media.swap_extent)
                     : media.copy(*media.swap, media.swap_extent, *media.dram, media.dram_extent);
    };
    return compare_row("tiers", write ? "dram to swap (page cache)" : "swap (page cache) to dram",
                       "GiB/s", write ? "the tier alone, pwrite" : "the tier alone, pread", "real",
                       alternate(kRepetitions, ours, bare));
}

Row dram_row(const Media& media) {
    const auto bare = [&] {
        return gib_per_second([&] {
            in_chunks([&](std::uint64_t offset) {
                std::memcpy(media.address(media.other_dram_extent) + offset,
                            media.address(media.dram_extent) + offset, kChunkBytes);
            });
        });
    };
    const auto ours = [&] {
        return media.copy(*media.dram, media.dram_extent, *media.dram, media.other_dram_extent);
    };
    return compare_row("tiers", "dram to dram", "GiB/s", "memcpy", "real",
                       alternate(kRepetitions, ours, bare));
}

}  // namespace

std::vector<Row> tiers_suite() {
    const Media media;
    if (pmem_is_pmem(media.pmem->host_address(media.pmem_extent), kBytes) == 0) {
        throw std::runtime_error("libpmem did not take /dev/shm for persistent memory");
    }
    return {dram_row(media), pmem_row(media, true), pmem_row(media, false), swap_row(media, true),
            swap_row(media, false)};
}

}  // namespace frostline::bench
