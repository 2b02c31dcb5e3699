// From options to tiers.
#include "bindings/tier_set.h"

#include "bindings/gpu_info.h"
#include "tiers/swap_tier.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <new>
#include <utility>

namespace frostline {
namespace {

Result<void> check_together(const ManagerOptions& options) {
    if (!options.dram_bytes) {
        return Error(Errc::invalid_argument, 0,
                     "no DRAM budget was given: set dram, for example to 256MiB");
    }
    if (options.gpu && !options.device_bytes && !options.pin) {
        return Error(Errc::invalid_argument, 0,
                     "gpu={} is given, but nothing that is for a GPU: set device, the budget of a "
                     "tier of its memory, or pin",
                     *options.gpu);
    }
    if (options.pmem_path.empty() && options.pmem_bytes > 0) {
        return Error(Errc::invalid_argument, 0, "pmem_bytes is given, but no pmem file");
    }
    if (options.swap_places.empty() && options.swap_bytes > 0) {
        return Error(Errc::invalid_argument, 0, "swap_bytes is given, but no swap directory");
    }
    if (options.far_node.has_value() != options.far_bytes.has_value()) {
        return Error(Errc::invalid_argument, 0, "far_node and far_bytes go together");
    }
    const auto& nodes = options.numa.nodes;
    if (options.far_node && options.numa.mode == NumaPlacement::Mode::bind &&
        std::find(nodes.begin(), nodes.end(), *options.far_node) != nodes.end()) {
        return Error(Errc::invalid_argument, 0,
                     "far_node: DRAM is bound to node {} already; name another node",
                     *options.far_node);
    }
    return ok();
}

// Cheaper than a topology, which most managers do not need. What cannot be read counts as one.
bool has_several_nodes() {
    std::ifstream file("/sys/devices/system/node/has_memory");
    std::string nodes;
    std::getline(file, nodes);
    return nodes.find_first_of(",-") != std::string::npos;
}

}  // namespace

Result<TierSet> TierSet::open(const ManagerOptions& options) {
    FROSTLINE_TRY_VOID(check_together(options));
    TierSet set;
    if (has_several_nodes() || options.far_node || !options.numa.nodes.empty()) {
        FROSTLINE_TRY(Topology topology, Topology::create());
        set.topology_ = std::make_unique<Topology>(std::move(topology));
    }
    if (options.device_bytes) {
        FROSTLINE_TRY_VOID(set.add_device(options));
    } else if (options.pin) {
        set.pin_for_gpu(options.gpu.value_or(0));
    }
    FROSTLINE_TRY_VOID(set.add_memory(options));
    FROSTLINE_TRY_VOID(set.add_files(options));
    return set;
}

template <class SomeTier>
SomeTier* TierSet::add(std::unique_ptr<SomeTier> tier) {
    SomeTier* const raw = tier.get();
    order_.push_back(raw);
    tiers_.push_back(std::move(tier));
    return raw;
}

Result<void> TierSet::add_memory(const ManagerOptions& options) {
    FROSTLINE_TRY(auto dram, DramTier::create({.id = next_id(),
                                               .capacity_bytes = *options.dram_bytes,
                                               .numa = options.numa,
                                               .pin_for_device = pins_.get(),
                                               .topology = topology_.get()}));
    dram_ = add(std::move(dram));
    if (options.far_node) {
        FROSTLINE_TRY(auto far,
                      DramTier::create({.id = next_id(),
                                        .capacity_bytes = *options.far_bytes,
                                        .numa = {NumaPlacement::Mode::bind, {*options.far_node}},
                                        .topology = topology_.get()}));
        (void)add(std::move(far));
    }
    return ok();
}

Result<void> TierSet::add_files(const ManagerOptions& options) {
    if (!options.pmem_path.empty()) {
        FROSTLINE_TRY(auto pmem, PmemTier::create({.id = next_id(),
                                                   .path = options.pmem_path,
                                                   .size_bytes = options.pmem_bytes,
                                                   .numa_node = node_of(options.pmem_path),
                                                   .registration = pins_.get()}));
        pmem_ = add(std::move(pmem));
    }
    if (!options.swap_places.empty()) {
        FROSTLINE_TRY(auto swap,
                      SwapTier::create({.id = next_id(),
                                        .places = options.swap_places,
                                        .size_bytes = options.swap_bytes,
                                        .block_devices = options.swap_devices,
                                        .numa_node = options.swap_places.size() == 1
                                                         ? node_of(options.swap_places[0])
                                                         : kNoNode}));
        (void)add(std::move(swap));
    }
    return ok();
}

Result<const CudaDriver*> TierSet::driver() {
    if (driver_ == nullptr) {
        FROSTLINE_TRY(CudaDriver loaded, CudaDriver::load());
        driver_ = std::make_unique<CudaDriver>(std::move(loaded));
    }
    return driver_.get();
}

Result<void> TierSet::add_device(const ManagerOptions& options) {
    FROSTLINE_TRY(const CudaDriver* const driver, this->driver());
    FROSTLINE_TRY(context_, CudaContext::create(*driver, options.gpu.value_or(0)));
    pin_for_gpu(context_->device());
    FROSTLINE_TRY(auto device, DeviceTier::create({.id = next_id(),
                                                   .context = context_,
                                                   .capacity_bytes = *options.device_bytes,
                                                   .registered = pins_.get(),
                                                   .numa_node = node_of_gpu()}));
    (void)add(std::move(device));
    return ok();
}

// Without a GPU, or where its driver refuses, memory is simply not pinned.
void TierSet::pin_for_gpu(int gpu) {
    const auto pin = [&]() -> Result<std::unique_ptr<HostRegistration>> {
        FROSTLINE_TRY(const CudaDriver* const driver, this->driver());
        FROSTLINE_TRY(auto context, CudaContext::create(*driver, gpu));
        return HostRegistration::create({.context = std::move(context)});
    };
    auto pins = pin();
    if (pins) {
        pins_ = *std::move(pins);
    } else {
        not_pinned_ = fmt::format("not pinned: {}", pins.error().message());
    }
}

std::string TierSet::dram_fallback() const {
    std::vector<std::string> reasons{dram_->info().fallback, not_pinned_};
    // The driver may refuse later than at the start, and pages may stray.
    if (const auto error = dram_->pinning_error(); error && dram_->info().fallback.empty()) {
        reasons.push_back(fmt::format("no longer pinned: {}", error->message()));
    }
    if (const std::uint64_t bytes = dram_->misplaced_bytes(); bytes > 0) {
        reasons.push_back(fmt::format("{} bytes were found on another NUMA node", bytes));
    }
    const auto machine_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                               static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    if (dram_->info().capacity_bytes > machine_bytes) {
        reasons.push_back(
            fmt::format("the budget exceeds the machine's memory of {} bytes", machine_bytes));
    }
    std::erase(reasons, "");
    return fmt::format("{}", fmt::join(reasons, "; "));
}

int TierSet::node_of(const std::string& path) const noexcept {
    if (topology_ == nullptr) return kNoNode;
    return topology_->node_of_path(path).value_or(kNoNode);
}

// Of the device tier's.
int TierSet::node_of_gpu() const {
    if (topology_ == nullptr) return kNoNode;
    const auto address = context_->pci_address();
    return address ? topology_->node_of_device(*address) : kNoNode;
}

void TierSet::bind_thread(int numa_node) const noexcept {
    // Only for speed: where it is refused the thread runs wherever it may.
    if (topology_ != nullptr) (void)topology_->bind_current_thread(numa_node);
}

const char* TierSet::name_of(const TierInfo& info) const noexcept {
    if (info.kind == TierKind::dram && info.id != dram_->info().id) return "far";
    return name(info.kind).data();  // a literal, so it ends in NUL
}

}  // namespace frostline
