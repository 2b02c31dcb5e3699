// Copies that pass through DRAM: from the device to pmem and swap, and back. The device is the
// emulated one, whose links are throttled, so that it is known what the slowest link is. Each is
// compared with the slower of its two halves, device with DRAM and DRAM with the medium, taken in
// the same run, by turns.
#include "bench/emulated_driver.h"
#include "bench/media.h"
#include "bench/suite.h"
#include "tiers/copy_engine.h"
#include "tiers/device_tier.h"
#include "tiers/dram_tier.h"
#include "tiers/host_registration.h"
#include "tiers/pmem_tier.h"
#include "tiers/swap_tier.h"

#include <fmt/core.h>

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace frostline::bench {
namespace {

constexpr int kRepetitions = 7;
constexpr std::uint64_t kBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kExtentBytes = std::uint64_t{32} << 20;
constexpr double kBar = 0.9;

// Started anew with links of a given speed.
CudaDriver throttled_driver(double gb_per_s) {
    const auto rate = static_cast<std::uint64_t>(gb_per_s * 1e9);
    return emulated_driver(
        fmt::format("memory=1GiB,h2d_bytes_per_s={0},d2h_bytes_per_s={0}", rate));
}

// The tiers of one run, in the order in which one needs the other.
struct Machine {
    explicit Machine(double gb_per_s) : driver(throttled_driver(gb_per_s)) {
        on_dram.fill();
        // So that no copy is the first to touch a page.
        (void)run_copies(*engine, {{&on_dram, &on_device}});
        (void)run_copies(*engine, {{&on_dram, &on_pmem}});
        (void)run_copies(*engine, {{&on_dram, &on_swap}});
    }

    CudaDriver driver;
    std::shared_ptr<CudaContext> context = expect(CudaContext::create(driver, 0));
    std::unique_ptr<HostRegistration> pins = expect(HostRegistration::create({.context = context}));
    BenchFolder folder;
    std::unique_ptr<DeviceTier> device = expect(DeviceTier::create(
        {.id = TierId{0}, .context = context, .capacity_bytes = kBytes, .registered = pins.get()}));
    std::unique_ptr<DramTier> dram = expect(DramTier::create(
        {.id = TierId{1}, .capacity_bytes = kBytes + kExtentBytes, .pin_for_device = pins.get()}));
    std::unique_ptr<PmemTier> pmem =
        expect(PmemTier::create({.id = TierId{2},
                                 .path = "/dev/shm/frostline-bench-" + std::to_string(getpid()),
                                 .size_bytes = kBytes}));
    std::unique_ptr<SwapTier> swap = expect(SwapTier::create({.id = TierId{3},
                                                              .places = {folder.path()},
                                                              .size_bytes = kBytes,
                                                              .growth_bytes = kBytes}));
    std::unique_ptr<CopyEngine> engine = expect(CopyEngine::create({}));
    Extents on_device{*device, kBytes, kExtentBytes};
    Extents on_dram{*dram, kBytes, kExtentBytes};
    Extents on_pmem{*pmem, kBytes, kExtentBytes};
    Extents on_swap{*swap, kBytes, kExtentBytes};
};

double speed(const Machine& machine, const Flow& flow) {
    return static_cast<double>(kBytes) / 1e9 / run_copies(*machine.engine, {flow}).seconds;
}

Row row(const Machine& machine, double gb_per_s, const char* name, const Extents& from,
        const Extents& to) {
    const auto whole = [&] { return speed(machine, {&from, &to}); };
    const auto slower_half = [&] {
        return std::min(speed(machine, {&from, &machine.on_dram}),
                        speed(machine, {&machine.on_dram, &to}));
    };
    return compare_row("pipelines", fmt::format("{}, link of {} GB/s", name, gb_per_s), "GB/s",
                       "the slower half", "emulated", alternate(kRepetitions, whole, slower_half),
                       kBar);
}

}  // namespace

std::vector<Row> pipelines_suite() {
    std::vector<Row> rows;
    for (const double gb_per_s : {1.0, 4.0, 8.0}) {
        const Machine machine(gb_per_s);
        for (const auto& [lower, medium] :
             {std::pair("pmem", &machine.on_pmem), {"swap", &machine.on_swap}}) {
            const std::string down = fmt::format("device to {}", lower);
            const std::string up = fmt::format("{} to device", lower);
            rows.push_back(row(machine, gb_per_s, down.c_str(), machine.on_device, *medium));
            rows.push_back(row(machine, gb_per_s, up.c_str(), *medium, machine.on_device));
        }
    }
    return rows;
}

}  // namespace frostline::bench
