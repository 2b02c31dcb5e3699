// The composition root: the only place that knows which tiers, policy and engine make a manager.
#include "bindings/manager.h"

#include "bindings/device_io.h"
#include "bindings/fork_watch.h"
#include "bindings/open_managers.h"
#include "bindings/stream_pins.h"
#include "bindings/tier_set.h"
#include "bindings/tier_speeds.h"
#include "migration/policies/lru_policy.h"
#include "migration/migration_engine.h"
#include "tiers/clock.h"
#include "tiers/copy_engine.h"

#include <new>
#include <optional>
#include <thread>
#include <utility>

namespace frostline {
// In the order of construction: the engine uses all that stands before it, and goes first.
struct Manager::Parts {
    explicit Parts(TierSet built) : tiers(std::move(built)) {}

    TierSet tiers;
    LruPolicy policy;
    ForkWatch fork;
    std::unique_ptr<CopyEngine> copies;
    std::optional<MigrationEngine> engine;
    std::optional<StreamPins> stream_pins;
    std::optional<DeviceIo> device_io;

    bool host_reaches_tensors() const { return tiers.order()[0]->info().host_addressable; }
};

struct PinnedTensor::Pin {
    std::shared_ptr<Manager::Parts> parts;
    PinnedBytes pinned;
    Pin() = default;
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    ~Pin() {
        if (parts && !parts->fork.is_child()) parts->engine->unpin(pinned);
    }
};

PinnedTensor::PinnedTensor() noexcept = default;
PinnedTensor::PinnedTensor(std::unique_ptr<Pin> pin) noexcept : pin_(std::move(pin)) {}
PinnedTensor::PinnedTensor(PinnedTensor&& other) noexcept = default;
PinnedTensor& PinnedTensor::operator=(PinnedTensor&& other) noexcept = default;
PinnedTensor::~PinnedTensor() = default;

std::span<std::byte> PinnedTensor::bytes() const noexcept {
    return pin_ ? pin_->pinned.bytes : std::span<std::byte>();
}

void PinnedTensor::release_after(void* stream) noexcept {
    if (!pin_) return;
    Manager::Parts& parts = *pin_->parts;
    // With host memory, work on it is over when its owner says so.
    if (!parts.fork.is_child() && !parts.host_reaches_tensors()) {
        parts.device_io->unpin_after(pin_->pinned, static_cast<CUstream>(stream));
        pin_->parts.reset();
    }
    pin_.reset();
}

Manager::Manager(std::shared_ptr<Parts> parts) noexcept : parts_(std::move(parts)) {}

namespace {

Error out_of_memory() noexcept {
    return Error(Errc::out_of_memory, 0, "no memory for Frostline's own structures");
}

void rate(const TierSet& tiers, SpeedSource source) {
    std::vector<TierToRate> to_rate;
    for (Tier* const tier : tiers.order()) to_rate.push_back({tier, source});
    (void)find_speeds(to_rate);
}

}  // namespace

Result<Manager> Manager::open(const ManagerOptions& options) try {
    FROSTLINE_TRY(const SpeedSource speeds, speed_source_from_environment());
    FROSTLINE_TRY(TierSet tiers, TierSet::open(options));
    if (options.calibrate) rate(tiers, speeds);
    // A child's copy is left alone: its locks may be held, and its threads do not exist.
    const std::shared_ptr<Parts> parts(new Parts(std::move(tiers)), [](Parts* gone) {
        if (gone->fork.is_child()) return;
        if (CopyEngine::on_worker() || StreamPins::on_own_thread()) {
            // The owner of a buffer let go of the last manager while it was given the buffer back:
            // the worker that runs this cannot wait for its own end. Nobody waits for this thread,
            // so a process that exits at this very moment may cut it short.
            std::thread([gone] { delete gone; }).detach();
        } else {
            delete gone;
        }
    });
    FROSTLINE_TRY(parts->copies, CopyEngine::create({.bind_worker = [raw = parts.get()](int node) {
                      raw->tiers.bind_thread(node);
                  }}));
    const bool dram_first = parts->tiers.order()[0] == parts->tiers.dram();
    parts->engine.emplace(
        MigrationEngine::Options{.tiers = parts->tiers.order(),
                                 .dram = dram_first ? parts->tiers.dram() : nullptr,
                                 .copies = parts->copies.get(),
                                 .policy = &parts->policy,
                                 .verify = options.verify,
                                 .now_ns = [] { return monotonic_ns(); }});
    parts->stream_pins.emplace(*parts->engine);
    parts->device_io.emplace(*parts->engine, *parts->stream_pins, parts->tiers);
    end_moves_at_exit(parts, *parts->engine);
    return Manager(parts);
} catch (const std::bad_alloc&) {
    return out_of_memory();
}

template <class Action>
std::invoke_result_t<Action, Manager::Parts&> Manager::call(Action&& action) const {
    if (parts_->fork.is_child()) {
        // CUDA does not survive a fork: what has a GPU can be had by a process of its own only.
        const bool has_gpu = parts_->tiers.device_context() != nullptr;
        return Error(Errc::unsupported, 0,
                     "this manager belongs to the parent process; open one in the child{}",
                     has_gpu ? ", without device: a forked child has no GPU; or start the process "
                               "by exec (in Python: multiprocessing's \"spawn\")"
                             : "");
    }
    try {
        return action(*parts_);
    } catch (const std::bad_alloc&) {
        return out_of_memory();
    }
}

Result<TensorId> Manager::put(std::span<const std::byte> bytes) {
    return call([&](Parts& parts) { return parts.engine->put(bytes); });
}

Result<AllocatedTensor> Manager::allocate(std::uint64_t size_bytes) {
    return call([&](Parts& parts) -> Result<AllocatedTensor> {
        auto pin = std::make_unique<PinnedTensor::Pin>();
        FROSTLINE_TRY(const NewTensor made, parts.engine->allocate(size_bytes));
        pin->pinned = made.pinned;
        pin->parts = parts_;
        return AllocatedTensor{made.id, PinnedTensor(std::move(pin))};
    });
}

Result<TensorId> Manager::put_device(const void* source, std::uint64_t size_bytes, void* stream,
                                     DeviceSource use) {
    return call([&](Parts& parts) {
        return parts.device_io->put(reinterpret_cast<CUdeviceptr>(source), size_bytes,
                                    static_cast<CUstream>(stream), use);
    });
}

Result<void> Manager::release_source(TensorId tensor, void* stream) {
    return call([&](Parts& parts) {
        return parts.device_io->release_source(tensor, static_cast<CUstream>(stream));
    });
}

Result<bool> Manager::source_read(TensorId tensor) {
    return call([&](Parts& parts) -> Result<bool> { return parts.device_io->source_read(tensor); });
}

Result<void> Manager::get_device(TensorId tensor, void* target, std::uint64_t size_bytes,
                                 void* stream) {
    return call([&](Parts& parts) {
        return parts.device_io->get(tensor, reinterpret_cast<CUdeviceptr>(target), size_bytes,
                                    static_cast<CUstream>(stream));
    });
}

Result<TensorId> Manager::adopt(std::span<std::byte> buffer, BufferRelease release, bool held) {
    return call([&](Parts& parts) { return parts.engine->adopt(buffer, release, held); });
}

Result<void> Manager::settle(TensorId tensor) {
    return call([&](Parts& parts) { return parts.engine->settle(tensor); });
}

Result<PinnedTensor> Manager::pin(TensorId tensor, Access access) {
    return call([&](Parts& parts) -> Result<PinnedTensor> {
        // First, so that no pin is lost should memory run out.
        auto pin = std::make_unique<PinnedTensor::Pin>();
        if (parts.host_reaches_tensors())
            FROSTLINE_TRY_VOID(parts.stream_pins->wait_for(tensor, access));
        FROSTLINE_TRY(pin->pinned, parts.engine->pin(tensor, access));
        pin->parts = parts_;
        return PinnedTensor(std::move(pin));
    });
}

Result<void> Manager::prefetch(TensorId tensor) {
    return call([&](Parts& parts) { return parts.engine->prefetch(tensor); });
}

Result<void> Manager::get(TensorId tensor, std::span<std::byte> out) {
    return call([&](Parts& parts) -> Result<void> {
        FROSTLINE_TRY_VOID(parts.stream_pins->wait_for(tensor, Access::read));
        return parts.engine->read(tensor, out);
    });
}

Result<std::uint64_t> Manager::size_bytes(TensorId tensor) const {
    return call([&](Parts& parts) { return parts.engine->size_bytes(tensor); });
}

Result<void> Manager::drop(TensorId tensor) {
    return call([&](Parts& parts) { return parts.engine->drop(tensor); });
}

Result<void> Manager::step() {
    return call([](Parts& parts) -> Result<void> {
        parts.engine->end_step();
        return ok();
    });
}

Result<void> Manager::close() {
    return call([](Parts& parts) -> Result<void> {
        parts.engine->stop();
        // Now, because a process may end without ever destroying what it closed.
        if (PmemTier* const pmem = parts.tiers.pmem()) pmem->remove_created_file();
        return ok();
    });
}

Result<std::size_t> Manager::pins() const {
    return call([](Parts& parts) -> Result<std::size_t> { return parts.engine->pins(); });
}

Result<std::string> Manager::trace() const {
    return call([](Parts& parts) -> Result<std::string> { return parts.engine->trace(); });
}

ManagerStats Manager::stats() const {
    if (parts_->fork.is_child()) return {};
    const EngineStats engine = parts_->engine->stats();
    ManagerStats stats{.tiers = {},
                       .stored = engine.stored,
                       .stored_bytes = engine.stored_bytes,
                       .dropped = engine.dropped,
                       .hits = engine.hits,
                       .use_stalls = engine.use_stalls,
                       .use_stall_ns = engine.use_stall_ns,
                       .store_stalls = engine.store_stalls,
                       .store_stall_ns = engine.store_stall_ns,
                       .moves = engine.moves,
                       .free_moves = engine.free_moves,
                       .failed_moves = engine.failed_moves,
                       .direct_reads = engine.direct_reads,
                       .prefetch_bytes = engine.prefetch_bytes};
    for (std::size_t i = 0; i < parts_->tiers.order().size(); ++i) {
        const TierInfo& info = parts_->tiers.order()[i]->info();
        const TierUsage usage = parts_->tiers.order()[i]->usage();
        stats.tiers.push_back({.name = parts_->tiers.name_of(info),
                               .label = name(info.label).data(),
                               .location = info.location,
                               .budget_bytes = info.capacity_bytes,
                               .used_bytes = usage.used_bytes,
                               .peak_bytes = usage.peak_bytes,
                               .moved_in_bytes = engine.moved_in_bytes[i],
                               .moved_out_bytes = engine.moved_out_bytes[i],
                               .staging_bytes = usage.staging_bytes,
                               .open = usage.open,
                               .access = info.access,
                               .fallback = parts_->tiers.order()[i] == parts_->tiers.dram()
                                               ? parts_->tiers.dram_fallback()
                                               : info.fallback,
                               .speed = info.speed});
    }
    return stats;
}

std::vector<UsageSample> Manager::timeline() const {
    std::vector<UsageSample> out;
    if (parts_->fork.is_child()) return out;
    for (const UsageTimeline::Sample& sample : parts_->engine->timeline()) {
        const auto first = sample.used_bytes.begin();
        out.push_back({sample.time_ns,
                       {first, first + static_cast<std::ptrdiff_t>(parts_->tiers.order().size())}});
    }
    return out;
}

const char* version() noexcept {
    return FROSTLINE_VERSION;
}

}  // namespace frostline
