// Copies through the copy engine, each against a bare loop over the same medium, alternated: memcpy
// into DRAM, and pmem_memcpy into a mapping on tmpfs (libpmem's real paths, forced, hence
// `emulated`). The swap tier's rows are in swap_rows.cpp.
#include "bench/media.h"
#include "bench/suite.h"
#include "bench/swap_rows.h"
#include "tiers/copy_engine.h"
#include "tiers/dram_tier.h"
#include "tiers/pmem_tier.h"

#include <libpmem.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace frostline::bench {
namespace {

constexpr int kRepetitions = 21;  // each takes milliseconds
constexpr std::uint64_t kBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kChunkBytes = std::uint64_t{4} << 20;

double gib_per_second(double elapsed_s) {
    return static_cast<double>(kBytes) / kGib / elapsed_s;
}

// The tiers of one run, each with an extent of kBytes whose pages have been touched.
struct Memory {
    std::unique_ptr<DramTier> dram =
        expect(DramTier::create({.id = TierId{0}, .capacity_bytes = 2 * kBytes}));
    std::unique_ptr<PmemTier> pmem =
        expect(PmemTier::create({.id = TierId{1},
                                 .path = "/dev/shm/frostline-bench-" + std::to_string(getpid()),
                                 .size_bytes = kBytes}));
    std::unique_ptr<CopyEngine> engine = expect(CopyEngine::create({.chunk_bytes = kChunkBytes}));
    Extents first{*dram, kBytes, kBytes};
    Extents second{*dram, kBytes, kBytes};
    Extents persistent{*pmem, kBytes, kBytes};

    Memory() {
        first.fill();
        second.fill();
    }
    static std::byte* address(const Extents& extents) {
        return extents.tier().address(extents.all().front());
    }
};

// `loop` does one chunk at an offset, and `finish` what comes after the last.
Row row(
    const Memory& memory, const std::string& name, const Flow& flow, double bar,
    const std::string& with, const std::string& label,
    const std::function<void(std::uint64_t offset)>& loop,
    const std::function<void()>& finish = [] {}) {
    const auto ours = [&] { return gib_per_second(run_copies(*memory.engine, {flow}).seconds); };
    const auto bare = [&] {
        return gib_per_second(seconds([&] {
            for (std::uint64_t offset = 0; offset < kBytes; offset += kChunkBytes) loop(offset);
            finish();
        }));
    };
    return compare_row("tiers", name, "GiB/s", with, label, alternate(kRepetitions, ours, bare),
                       bar);
}

std::vector<Row> memory_rows() {
    const Memory memory;
    std::byte* const first = Memory::address(memory.first);
    std::byte* const second = Memory::address(memory.second);
    std::byte* const persistent = Memory::address(memory.persistent);
    if (pmem_is_pmem(persistent, kBytes) == 0) {
        throw std::runtime_error("libpmem did not take /dev/shm for persistent memory");
    }
    return {row(memory, "dram to dram", {&memory.first, &memory.second}, 0, "memcpy", "real",
                [&](std::uint64_t at) { std::memcpy(second + at, first + at, kChunkBytes); }),
            row(
                memory, "dram to pmem", {&memory.first, &memory.persistent}, 0.95,
                "pmem_memcpy and drain, tmpfs", "emulated",
                [&](std::uint64_t at) {
                    (void)pmem_memcpy(persistent + at, first + at, kChunkBytes, PMEM_F_MEM_NODRAIN);
                },
                [] { pmem_drain(); }),
            row(memory, "pmem to dram", {&memory.persistent, &memory.first}, 0.95, "memcpy, tmpfs",
                "emulated",
                [&](std::uint64_t at) { std::memcpy(first + at, persistent + at, kChunkBytes); })};
}

}  // namespace

std::vector<Row> tiers_suite() {
    std::vector<Row> rows = memory_rows();
    for (Row& each : swap_rows()) rows.push_back(std::move(each));
    return rows;
}

}  // namespace frostline::bench
