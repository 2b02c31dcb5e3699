// Joined copies begin when the first of them would.
#include "migration/planning/transfer_queue.h"

#include <algorithm>
#include <unordered_map>

namespace frostline {
namespace {

// Copies out are joined only if they follow each other at once: a later one may be of content that
// is written in between.
constexpr SlotIndex kNearOuts = 2;
constexpr SlotIndex kNearIns = 1024;

template <class Each>
void sort_by_slot(std::vector<Each>& queue) {
    std::stable_sort(queue.begin(), queue.end(), [](const Each& a, const Each& b) {
        return a.slot != b.slot ? a.slot < b.slot : a.needed_by < b.needed_by;
    });
}

std::vector<PlannedCopy> joined(std::vector<PlannedCopy> copies, std::uint64_t largest_bytes,
                                SlotIndex near) {
    sort_by_slot(copies);
    struct Last {
        std::size_t place;
        SlotIndex slot;
    };
    std::unordered_map<GapNumber, Last> last;
    std::vector<PlannedCopy> joined;
    for (const PlannedCopy& copy : copies) {
        const auto [entry, is_new] = last.try_emplace(copy.gap, Last{joined.size(), copy.slot});
        if (!is_new) {
            PlannedCopy& before = joined[entry->second.place];
            const bool follows =
                before.link == copy.link &&
                before.range.offset_bytes + before.range.size_bytes == copy.range.offset_bytes &&
                copy.slot - entry->second.slot <= near &&
                before.range.size_bytes + copy.range.size_bytes <= largest_bytes;
            entry->second.slot = copy.slot;
            if (follows) {
                before.range.size_bytes += copy.range.size_bytes;
                continue;
            }
            entry->second.place = joined.size();
        }
        joined.push_back(copy);
    }
    return joined;
}

// Bytes of one gap and link come back in the order of their offsets: which of them a slot was found
// for does not matter.
void order_offsets(std::vector<PlannedCopy>& ins) {
    sort_by_slot(ins);
    std::unordered_map<std::uint64_t, std::vector<std::size_t>> by_gap;
    for (std::size_t i = 0; i < ins.size(); ++i) {
        by_gap[std::uint64_t{ins[i].gap} << 32 | ins[i].link].push_back(i);
    }
    for (auto& [gap, places] : by_gap) {
        std::vector<TensorRange> ranges;
        for (const std::size_t place : places) ranges.push_back(ins[place].range);
        std::sort(ranges.begin(), ranges.end(), [](const TensorRange& a, const TensorRange& b) {
            return a.offset_bytes < b.offset_bytes;
        });
        for (std::size_t i = 0; i < places.size(); ++i) ins[places[i]].range = ranges[i];
    }
}

std::vector<std::vector<QueuedCopy>> unrolled(const std::vector<PlannedCopy>& copies,
                                              std::size_t links, SlotIndex slots,
                                              std::uint32_t steps) {
    std::vector<std::vector<QueuedCopy>> queues(links);
    for (std::int64_t step = -1; step <= static_cast<std::int64_t>(steps); ++step) {
        for (const PlannedCopy& copy : copies) {
            const SlotIndex start = step * slots;
            queues[copy.link].push_back({copy.range, copy.link, copy.slot + start,
                                         copy.needed_by + start, copy.void_at + start, step});
        }
    }
    for (std::vector<QueuedCopy>& queue : queues) {
        std::erase_if(queue, [&](const QueuedCopy& copy) { return copy.slot >= steps * slots; });
        sort_by_slot(queue);
    }
    return queues;
}

}  // namespace

TransferQueues queue_transfers(const TransferPlan& plan, const Machine& machine,
                               const PlanTimeline& timeline, std::uint32_t steps,
                               std::uint64_t largest_copy_bytes) {
    std::vector<PlannedCopy> ins = plan.ins;
    order_offsets(ins);
    const SlotIndex slots = timeline.size();
    TransferQueues queues;
    queues.outs = unrolled(joined(plan.outs, largest_copy_bytes, kNearOuts), machine.links.size(),
                           slots, steps);
    queues.ins = unrolled(joined(std::move(ins), largest_copy_bytes, kNearIns),
                          machine.links.size(), slots, steps);
    for (std::int64_t step = 0; step < static_cast<std::int64_t>(steps); ++step) {
        for (const PlannedDrop& drop : plan.drops) {
            const SlotIndex start = step * slots;
            queues.drops.push_back({drop.range, drop.slot + start, drop.needed_by + start});
        }
    }
    sort_by_slot(queues.drops);
    return queues;
}

}  // namespace frostline
