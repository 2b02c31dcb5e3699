// The order of events: copies end, a kernel ends, the policy is told, the next kernel gathers what
// it needs, and starts.
#include "migration/planning/policy_simulation.h"

#include "migration/planning/simulated_links.h"
#include "migration/planning/simulated_memory.h"
#include "migration/planning/tiers_by_speed.h"
#include "migration/policies/lru_policy.h"
#include "migration/prefetch_window.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

namespace frostline {
namespace {

using Urgency = SimulatedLinks::Urgency;

constexpr TierId kDevice{0};

class PolicySimulation {
   public:
    PolicySimulation(const Trace& trace, const Machine& machine, const Policy& policy,
                     const std::vector<TierIndex>& tiers)
        : trace_(trace),
          policy_(policy),
          links_(machine, trace.tensors().size()),
          memory_(trace, machine, tiers, links_, run_.schedule),
          window_(memory_.view(kDevice).capacity_bytes),
          last_user_(trace.tensors().size(), kNobody),
          most_attempts_(kLeastAttempts + 4 * trace.tensors().size()) {}

    Result<SimulatedRun> run(std::uint32_t steps) {
        FROSTLINE_TRY_VOID(memory_.place_weights());
        for (std::uint32_t step = 0; step < steps; ++step) {
            for (kernel_ = 0; kernel_ < trace_.kernels().size(); ++kernel_) {
                list_uses(step);
                FROSTLINE_TRY_VOID(gather());
                execute(step);
            }
        }
        return std::move(run_);
    }

   private:
    static constexpr std::uint64_t kNobody = UINT64_MAX;
    static constexpr std::size_t kLeastAttempts = 256;

    struct Use {
        TensorIndex tensor = 0;
        Access access = Access::read;
        bool is_birth = false;
        bool held = false;
        bool waited = false;
    };

    void list_uses(std::uint32_t step);
    Result<void> gather();
    Result<std::uint64_t> hold_uses();
    Result<void> make_room(std::uint64_t missing_bytes, std::size_t attempt);
    bool all_held() const;
    void execute(std::uint32_t step);
    void advance(std::uint64_t to_ns);
    void decide(const Policy& policy, const PolicyEvent& event);
    void carry_out(const Decision& decision);
    Error no_room(std::uint64_t missing_bytes) const;

    const Trace& trace_;
    const Policy& policy_;
    const LruPolicy fallback_;
    SimulatedRun run_;
    SimulatedLinks links_;
    SimulatedMemory memory_;
    PrefetchWindow window_;
    std::uint64_t now_ns_ = 0;
    KernelIndex kernel_ = 0;
    std::vector<Use> uses_;  ///< of the kernel that runs or runs next, each tensor once
    std::vector<std::uint64_t> last_user_;  ///< by tensor: which run of a kernel listed it last
    std::vector<Decision> decisions_;
    std::size_t most_attempts_;
};

void PolicySimulation::list_uses(std::uint32_t step) {
    const std::uint64_t run = std::uint64_t{step} * trace_.kernels().size() + kernel_;
    uses_.clear();
    const auto add = [&](TensorIndex tensor, Access access) {
        if (std::exchange(last_user_[tensor], run) == run) return;
        uses_.push_back({tensor, access, memory_.record(tensor) == nullptr});
    };
    // Written tensors first, so that one that is read as well is listed as written.
    for (const TensorIndex tensor : trace_.writes(kernel_)) add(tensor, Access::write);
    for (const TensorIndex tensor : trace_.reads(kernel_)) add(tensor, Access::read);
}

bool PolicySimulation::all_held() const {
    return std::all_of(uses_.begin(), uses_.end(), [](const Use& use) { return use.held; });
}

// Until the kernel holds all that it uses. Time passes while copies run.
Result<void> PolicySimulation::gather() {
    for (std::size_t attempt = 0;; ++attempt) {
        FROSTLINE_TRY(const std::uint64_t missing_bytes, hold_uses());
        if (missing_bytes > 0) FROSTLINE_TRY_VOID(make_room(missing_bytes, attempt));
        if (all_held()) return ok();
        links_.start(now_ns_);
        // With nothing under way nothing can change any more.
        const auto next_ns = links_.next_end_ns();
        if (!next_ns || attempt > 2 * most_attempts_) return no_room(missing_bytes);
        advance(*next_ns);
    }
}

// Holds what is there and begins to fetch what is not. The result is how many bytes of it found no
// room.
Result<std::uint64_t> PolicySimulation::hold_uses() {
    std::uint64_t missing_bytes = 0;
    for (Use& use : uses_) {
        if (use.held) continue;
        const TensorRecord* const record = memory_.record(use.tensor);
        if (record == nullptr) {
            FROSTLINE_TRY(use.held, memory_.create(use.tensor));
            if (!use.held) missing_bytes += trace_.tensors()[use.tensor].size_bytes;
        } else if (memory_.resident(use.tensor)) {
            memory_.pin(use.tensor, use.access, now_ns_);
            use.held = true;
        } else {
            use.waited = true;
            links_.raise(use.tensor);
            if (record->residency.load().moving) continue;
            const auto start = memory_.move(record->id(), kDevice, Urgency::demand, now_ns_);
            if (start == SimulatedMemory::MoveStart::no_room) missing_bytes += record->size_bytes;
        }
    }
    return missing_bytes;
}

Result<void> PolicySimulation::make_room(std::uint64_t missing_bytes, std::size_t attempt) {
    // A policy that brings back at once what it has moved away is asked no more.
    if (attempt <= most_attempts_) {
        decide(policy_, {PolicyEvent::Kind::pressure, nullptr, missing_bytes});
        FROSTLINE_TRY(missing_bytes, hold_uses());
    }
    if (missing_bytes == 0 || !links_.idle()) return ok();
    ++run_.fallbacks;
    decide(fallback_, {PolicyEvent::Kind::pressure, nullptr, missing_bytes});
    FROSTLINE_TRY(missing_bytes, hold_uses());
    if (missing_bytes > 0 && links_.idle()) return no_room(missing_bytes);
    return ok();
}

void PolicySimulation::execute(std::uint32_t step) {
    run_.schedule.kernels.push_back({step, kernel_, now_ns_});
    for (const Use& use : uses_) {
        if (use.is_birth) {
            decide(policy_, {PolicyEvent::Kind::settled, memory_.record(use.tensor), 0});
            continue;
        }
        if (use.waited) {
            window_.stalled();
        } else {
            window_.hit();
        }
        decide(policy_, {PolicyEvent::Kind::used, memory_.record(use.tensor), 0});
    }
    links_.start(now_ns_);
    advance(now_ns_ + trace_.kernels()[kernel_].duration_ns);
    for (const Use& use : uses_) {
        const TraceTensor& tensor = trace_.tensors()[use.tensor];
        memory_.unpin(use.tensor);
        if (!tensor.is_weight && tensor.last_use == kernel_) memory_.erase(use.tensor);
    }
    for (const Use& use : uses_) {
        const TensorRecord* const record = memory_.record(use.tensor);
        if (record != nullptr) decide(policy_, {PolicyEvent::Kind::settled, record, 0});
    }
    links_.start(now_ns_);
}

void PolicySimulation::advance(std::uint64_t to_ns) {
    for (auto next = links_.next_end_ns(); next && *next <= to_ns; next = links_.next_end_ns()) {
        now_ns_ = *next;
        while (const auto ended = links_.take_ended(now_ns_)) memory_.finish(*ended);
        links_.start(now_ns_);
    }
    now_ns_ = to_ns;
}

void PolicySimulation::decide(const Policy& policy, const PolicyEvent& event) {
    StepView step;
    decisions_.clear();
    policy.decide(memory_.view(step, kernel_, window_.bytes()), event, decisions_);
    for (const Decision& decision : decisions_) carry_out(decision);
}

void PolicySimulation::carry_out(const Decision& decision) {
    if (decision.action == Decision::Action::drop_copy) {
        (void)memory_.drop_copy(decision.tensor, decision.tier, now_ns_);
        return;
    }
    const Urgency urgency = decision.tier == kDevice ? Urgency::prefetch : Urgency::eviction;
    auto start = memory_.move(decision.tensor, decision.tier, urgency, now_ns_);
    if (decision.tier == kDevice) return;  // a prefetch that finds no room is merely late
    // The tier that was chosen is full or closed after all: another one takes over.
    for (std::size_t other = 1; other < memory_.tiers(); ++other) {
        if (start != SimulatedMemory::MoveStart::no_room) return;
        if (other == index_of(decision.tier)) continue;
        start = memory_.move(decision.tensor, static_cast<TierId>(other), urgency, now_ns_);
    }
}

Error PolicySimulation::no_room(std::uint64_t missing_bytes) const {
    return Error(Errc::no_space, 0,
                 "kernel {} {}: {} bytes that it needs find no room on the device, and what lies "
                 "there cannot leave; give the machine more memory",
                 kernel_, trace_.name(kernel_), missing_bytes);
}

// That a kernel's tensors fit the device at all is for nobody to make room for.
Result<void> check_kernels(const Trace& trace, std::uint64_t device_bytes) {
    std::vector<KernelIndex> last_user(trace.tensors().size(), UINT32_MAX);
    for (KernelIndex kernel = 0; kernel < trace.kernels().size(); ++kernel) {
        std::uint64_t needed_bytes = 0;
        for (const TensorIndex tensor : trace.uses(kernel)) {
            if (std::exchange(last_user[tensor], kernel) == kernel) continue;
            needed_bytes += trace.tensors()[tensor].size_bytes;
        }
        if (needed_bytes <= device_bytes) continue;
        return Error(Errc::no_space, 0,
                     "kernel {} {} uses {} bytes at once and the device has {}: {} bytes are "
                     "missing; give it more memory",
                     kernel, trace.name(kernel), needed_bytes, device_bytes,
                     needed_bytes - device_bytes);
    }
    return ok();
}

}  // namespace

Result<SimulatedRun> simulate_policy(const Trace& trace, const Machine& machine,
                                     const Policy& policy, std::uint32_t steps) noexcept {
    try {
        FROSTLINE_TRY_VOID(check_kernels(trace, machine.tiers[machine.device].size_bytes));
        FROSTLINE_TRY(const auto tiers, tiers_by_speed(machine));
        return PolicySimulation(trace, machine, policy, tiers).run(steps);
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "no memory to simulate {} kernels and {} tensors",
                     trace.kernels().size(), trace.tensors().size());
    }
}

}  // namespace frostline
