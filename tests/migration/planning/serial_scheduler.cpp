// Each act is first checked against the books and then written down at the present time, which
// never goes back.
#include "tests/migration/planning/serial_scheduler.h"

#include "tests/tiers/seed.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace frostline {

namespace {

constexpr std::uint64_t kAnyTime = std::numeric_limits<std::uint64_t>::max();

bool has(std::span<const TensorIndex> tensors, TensorIndex tensor) {
    return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
}

}  // namespace

TierIndex tier_below(const Machine& machine) {
    return machine.device == 0 ? 1 : 0;
}

SerialScheduler::SerialScheduler(const Trace& trace, const Machine& machine,
                                 std::mt19937_64& random)
    : trace_(trace),
      machine_(machine),
      random_(random),
      lives_(trace.tensors().size()),
      used_bytes_(machine.tiers.size()),
      load_(machine.resources.size()) {}

Schedule SerialScheduler::run(std::uint32_t steps) {
    cut_parts();
    place_weights();
    for (std::uint32_t step = 0; step < steps; ++step) {
        for (KernelIndex i = 0; i < trace_.kernels().size(); ++i) run_kernel(step, i);
    }
    return schedule_;
}

void SerialScheduler::cut_parts() {
    for (TensorIndex i = 0; i < trace_.tensors().size(); ++i) {
        const std::uint64_t size_bytes = trace_.tensors()[i].size_bytes;
        std::set<std::uint64_t> cuts{0, size_bytes};
        const std::uint64_t more = between(random_, 0, 3);
        for (std::uint64_t k = 0; k < more; ++k) cuts.insert(between(random_, 0, size_bytes));
        for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
            parts_.push_back({{i, *cut, *std::next(cut) - *cut},
                              std::vector(machine_.tiers.size(), Held::no),
                              std::vector<std::uint32_t>(machine_.tiers.size(), 0)});
        }
    }
}

void SerialScheduler::place_weights() {
    for (Part& part : parts_) {
        if (!trace_.tensors()[part.range.tensor].is_weight) continue;
        lives_[part.range.tensor] = true;
        hold(part, tier_below(machine_), Held::whole);
        schedule_.init.push_back({part.range, tier_below(machine_)});
        const auto second = static_cast<TierIndex>(between(random_, 0, machine_.tiers.size() - 1));
        if (part.held[second] != Held::no || !is_reachable(second)) continue;
        if (used_bytes_[second] + part.range.size_bytes > machine_.tiers[second].size_bytes)
            continue;
        hold(part, second, Held::whole);
        schedule_.init.push_back({part.range, second});
        if (between(random_, 0, 1) == 0) continue;
        release(part, tier_below(machine_));
        schedule_.init.erase(schedule_.init.end() - 2);
    }
}

void SerialScheduler::run_kernel(std::uint32_t step, KernelIndex kernel) {
    if (between(random_, 0, 3) == 0) advance(now_ns_ + between(random_, 1, 100));
    make_room(kernel);
    fetch(kernel);
    wait_for_copies(kernel);
    schedule_.kernels.push_back({step, kernel, now_ns_});
    is_running_ = true;
    running_ = kernel;
    for (Part& part : parts_) {
        const TensorIndex tensor = part.range.tensor;
        if (!is_used(tensor, kernel)) continue;
        if (!lives_[tensor]) hold(part, machine_.device, Held::whole);
        if (!is_written(tensor, kernel)) continue;
        for (TierIndex tier = 0; tier < machine_.tiers.size(); ++tier) {
            if (tier != machine_.device && part.held[tier] != Held::no) release(part, tier);
        }
    }
    for (const TensorIndex tensor : trace_.uses(kernel)) lives_[tensor] = true;
    const std::uint64_t end_ns = now_ns_ + trace_.kernels()[kernel].duration_ns;
    act_beside(kernel, end_ns);
    advance(end_ns);
    end_kernel(kernel);
}

void SerialScheduler::make_room(KernelIndex kernel) {
    const TierIndex device = machine_.device;
    while (missing_bytes(kernel) > machine_.tiers[device].size_bytes - used_bytes_[device]) {
        evict_one(kernel);
    }
}

void SerialScheduler::evict_one(KernelIndex kernel) {
    const TierIndex device = machine_.device;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        Part& part = parts_[i];
        if (part.held[device] != Held::whole || is_used(part.range.tensor, kernel)) continue;
        if (try_drop(i, device)) return;
        for (std::size_t link = 0; link < machine_.links.size(); ++link) {
            const MachineLink& each = machine_.links[link];
            if (each.from != device || each.to != tier_below(machine_)) continue;
            if (!try_copy(i, link, kAnyTime)) continue;
            while (part.readers[device] != 0) wait();
            if (try_drop(i, device)) return;
        }
    }
    wait();
}

void SerialScheduler::fetch(KernelIndex kernel) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        const Part& part = parts_[i];
        if (!is_used(part.range.tensor, kernel) || !lives_[part.range.tensor]) continue;
        while (part.held[machine_.device] == Held::no) {
            bool is_fetched = false;
            for (std::size_t link = 0; link < machine_.links.size() && !is_fetched; ++link) {
                if (machine_.links[link].to == machine_.device) {
                    is_fetched = try_copy(i, link, kAnyTime);
                }
            }
            if (!is_fetched) wait();
        }
    }
}

void SerialScheduler::wait_for_copies(KernelIndex kernel) {
    const std::uint64_t duration_ns = trace_.kernels()[kernel].duration_ns;
    const auto disturbs = [&](const Copy& copy) {
        const TensorIndex tensor = parts_[copy.part].range.tensor;
        if (is_written(tensor, kernel)) return true;
        if (dies_in(tensor, kernel) && copy.end_ns > now_ns_ + duration_ns) return true;
        return is_used(tensor, kernel) && machine_.links[copy.link].to == machine_.device;
    };
    while (std::any_of(copies_.begin(), copies_.end(), disturbs)) wait();
}

void SerialScheduler::act_beside(KernelIndex kernel, std::uint64_t end_ns) {
    const std::uint64_t acts = between(random_, 0, 8);
    for (std::uint64_t i = 0; i < acts && now_ns_ + 1 < end_ns; ++i) {
        // Not in the first instant: there, moves come before the kernel.
        advance(between(random_,
                        std::max(now_ns_, end_ns - trace_.kernels()[kernel].duration_ns + 1),
                        end_ns - 1));
        const std::size_t part = between(random_, 0, parts_.size() - 1);
        if (between(random_, 0, 2) == 0) {
            try_drop(part, static_cast<TierIndex>(between(random_, 0, machine_.tiers.size() - 1)));
            continue;
        }
        const std::size_t link = between(random_, 0, machine_.links.size() - 1);
        try_copy(part, link, dies_in(parts_[part].range.tensor, kernel) ? end_ns : kAnyTime);
    }
}

void SerialScheduler::end_kernel(KernelIndex kernel) {
    is_running_ = false;
    for (Part& part : parts_) {
        if (!dies_in(part.range.tensor, kernel)) continue;
        for (TierIndex tier = 0; tier < machine_.tiers.size(); ++tier) {
            if (part.held[tier] != Held::no) release(part, tier);
        }
        lives_[part.range.tensor] = false;
    }
}

void SerialScheduler::advance(std::uint64_t to_ns) {
    for (std::size_t i = 0; i < copies_.size();) {
        if (copies_[i].end_ns > to_ns) {
            ++i;
            continue;
        }
        const Copy copy = copies_[i];
        copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(i));
        const MachineLink& link = machine_.links[copy.link];
        --parts_[copy.part].readers[link.from];
        parts_[copy.part].held[link.to] = Held::whole;
        for (const ResourceIndex each : link.resources) load_[each] -= copy.bytes_per_second;
    }
    now_ns_ = to_ns;
}

void SerialScheduler::wait() {
    std::uint64_t next_ns = kAnyTime;
    for (const Copy& each : copies_) next_ns = std::min(next_ns, each.end_ns);
    advance(next_ns);
}

bool SerialScheduler::try_copy(std::size_t index, std::size_t link_index,
                               std::uint64_t latest_end_ns) {
    Part& part = parts_[index];
    const MachineLink& link = machine_.links[link_index];
    if (!lives_[part.range.tensor] || part.held[link.from] != Held::whole) return false;
    if (part.held[link.to] != Held::no) return false;
    if (used_bytes_[link.to] + part.range.size_bytes > machine_.tiers[link.to].size_bytes)
        return false;
    if (is_running_ && link.from == machine_.device && is_written(part.range.tensor, running_)) {
        return false;
    }
    double free = std::numeric_limits<double>::infinity();
    for (const ResourceIndex each : link.resources) {
        free = std::min(free, machine_.resources[each].bytes_per_second - load_[each]);
    }
    if (free < 1e8) return false;
    free /= static_cast<double>(between(random_, 1, 2));
    const auto size_bytes = static_cast<double>(part.range.size_bytes);
    const auto busy_ns = static_cast<std::uint64_t>(std::ceil(size_bytes / free * 1e9));
    const std::uint64_t end_ns = now_ns_ + link.latency_ns + busy_ns;
    if (end_ns > latest_end_ns) return false;
    const double bytes_per_second = size_bytes / static_cast<double>(busy_ns) * 1e9;
    for (const ResourceIndex each : link.resources) load_[each] += bytes_per_second;
    hold(part, link.to, Held::arriving);
    ++part.readers[link.from];
    copies_.push_back({index, link_index, end_ns, bytes_per_second});
    schedule_.moves.push_back({part.range, link.from, link.to, now_ns_, end_ns});
    return true;
}

bool SerialScheduler::try_drop(std::size_t index, TierIndex tier) {
    Part& part = parts_[index];
    if (part.held[tier] != Held::whole || part.readers[tier] != 0) return false;
    if (is_running_ && tier == machine_.device && is_used(part.range.tensor, running_))
        return false;
    for (TierIndex other = 0; other < machine_.tiers.size(); ++other) {
        if (other == tier || part.held[other] != Held::whole || !is_reachable(other)) continue;
        release(part, tier);
        schedule_.drops.push_back({part.range, tier, now_ns_});
        return true;
    }
    return false;
}

bool SerialScheduler::is_used(TensorIndex tensor, KernelIndex kernel) const {
    return has(trace_.uses(kernel), tensor);
}

bool SerialScheduler::is_written(TensorIndex tensor, KernelIndex kernel) const {
    return has(trace_.writes(kernel), tensor);
}

bool SerialScheduler::dies_in(TensorIndex tensor, KernelIndex kernel) const {
    const TraceTensor& each = trace_.tensors()[tensor];
    return !each.is_weight && each.is_used && each.last_use == kernel;
}

bool SerialScheduler::is_reachable(TierIndex tier) const {
    return tier == machine_.device ||
           std::any_of(machine_.links.begin(), machine_.links.end(), [&](const MachineLink& each) {
               return each.from == tier && each.to == machine_.device;
           });
}

std::uint64_t SerialScheduler::missing_bytes(KernelIndex kernel) const {
    std::uint64_t bytes = 0;
    for (const Part& part : parts_) {
        const bool is_missing = part.held[machine_.device] == Held::no;
        if (is_missing && is_used(part.range.tensor, kernel)) bytes += part.range.size_bytes;
    }
    return bytes;
}

void SerialScheduler::hold(Part& part, TierIndex tier, Held how) {
    part.held[tier] = how;
    used_bytes_[tier] += part.range.size_bytes;
}

void SerialScheduler::release(Part& part, TierIndex tier) {
    part.held[tier] = Held::no;
    used_bytes_[tier] -= part.range.size_bytes;
}

}  // namespace frostline
