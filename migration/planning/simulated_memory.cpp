// The books of simulated tiers, in the terms of the live engine's.
#include "migration/planning/simulated_memory.h"

#include "tiers/check.h"

#include <algorithm>
#include <utility>

namespace frostline {

SimulatedMemory::SimulatedMemory(const Trace& trace, const Machine& machine,
                                 std::vector<TierIndex> tiers, SimulatedLinks& links,
                                 Schedule& schedule)
    : trace_(trace),
      machine_(machine),
      tiers_(std::move(tiers)),
      links_(links),
      schedule_(schedule),
      records_(trace.tensors().size()) {
    for (std::size_t i = 0; i < tiers_.size(); ++i) {
        views_.push_back(describe(static_cast<TierId>(i)));
    }
}

TierView SimulatedMemory::describe(TierId id) const {
    const MachineTier& described = machine_.tiers[tiers_[index_of(id)]];
    TierView view{.id = id, .kind = TierKind::device, .capacity_bytes = described.size_bytes};
    if (id == kDevice) return view;
    // All that a policy needs to know of a medium is how fast it is.
    view.kind = described.name == name(TierKind::dram) ? TierKind::dram : TierKind::swap;
    const MachineLink* const out = link(kDevice, id);
    const MachineLink* const in = link(id, kDevice);
    view.open = out != nullptr && in != nullptr;
    if (!view.open) return view;
    const auto rate = [&](const MachineLink& each) {
        return static_cast<std::uint64_t>(std::max(1.0, machine_.bytes_per_second(each)));
    };
    view.speed = {.read_bytes_per_s = rate(*in),
                  .write_bytes_per_s = rate(*out),
                  .read_latency_ns = in->latency_ns,
                  .write_latency_ns = out->latency_ns};
    return view;
}

const MachineLink* SimulatedMemory::link(TierId from, TierId to) const {
    return machine_.link(tiers_[index_of(from)], tiers_[index_of(to)]);
}

TierId SimulatedMemory::tier_id(TierIndex tier) const {
    return static_cast<TierId>(std::find(tiers_.begin(), tiers_.end(), tier) - tiers_.begin());
}

TensorRange SimulatedMemory::whole(TensorIndex tensor) const {
    return {tensor, 0, trace_.tensors()[tensor].size_bytes};
}

Result<void> SimulatedMemory::place_weights() {
    std::vector<TensorIndex> weights;
    const auto& tensors = trace_.tensors();
    for (TensorIndex i = 0; i < tensors.size(); ++i) {
        if (tensors[i].is_weight) weights.push_back(i);
    }
    // One that nothing uses is best out of the way.
    std::stable_sort(weights.begin(), weights.end(), [&](TensorIndex a, TensorIndex b) {
        const auto rank = [&](TensorIndex i) {
            return std::pair(!tensors[i].is_used, tensors[i].first_use);
        };
        return rank(a) < rank(b);
    });
    for (const TensorIndex weight : weights) {
        const std::uint64_t size_bytes = tensors[weight].size_bytes;
        const auto fits = [&](const TierView& tier) {
            return tier.open && tier.free_bytes() >= size_bytes;
        };
        const auto home =
            std::find_if(views_.begin() + (tensors[weight].is_used ? 0 : 1), views_.end(), fits);
        const TierView* const chosen =
            home != views_.end() ? &*home : (fits(views_[0]) ? &views_[0] : nullptr);
        if (chosen == nullptr) {
            return Error(Errc::no_space, 0,
                         "weight {} of {} bytes finds no room in any tier; give the machine more "
                         "memory",
                         tensors[weight].id, size_bytes);
        }
        schedule_.init.push_back({whole(weight), tiers_[index_of(chosen->id)]});
        FROSTLINE_TRY_VOID(add(weight, chosen->id));
    }
    return ok();
}

bool SimulatedMemory::resident(TensorIndex tensor) const {
    return records_[tensor] != nullptr && records_[tensor]->residency.load().home == kDevice;
}

Result<void> SimulatedMemory::add(TensorIndex tensor, TierId home) {
    const std::uint64_t size_bytes = trace_.tensors()[tensor].size_bytes;
    FROSTLINE_TRY(TensorRecord* const record,
                  table_.create(size_bytes, {{home, 0, size_bytes}, std::nullopt}));
    tier(home).used_bytes += size_bytes;
    records_[tensor] = record;
    if (by_slot_.size() <= record->slot) {
        by_slot_.resize(record->slot + std::size_t{1}, StepView::kUnknown);
    }
    by_slot_[record->slot] = tensor;
    return ok();
}

Result<bool> SimulatedMemory::create(TensorIndex tensor) {
    if (views_[0].free_bytes() < trace_.tensors()[tensor].size_bytes) return false;
    FROSTLINE_TRY_VOID(add(tensor, kDevice));
    pin(tensor, Access::write, 0);
    return true;
}

void SimulatedMemory::pin(TensorIndex tensor, Access access, std::uint64_t now_ns) {
    TensorRecord& record = *records_[tensor];
    table_.touch(record);
    if (access == Access::write) {
        // What a copy under way carries will be of no use: it is as if it had not begun.
        if (record.residency.load().moving) cancel_move(record);
        for (std::size_t i = 1; i < views_.size(); ++i) {
            if (record.copies[i]) give_up_copy(record, static_cast<TierId>(i), now_ns);
        }
    }
    FROSTLINE_CHECK(
        record.residency.pin(record.id().generation, access) == Residency::PinResult::pinned,
        "a resident tensor could not be pinned");
}

void SimulatedMemory::unpin(TensorIndex tensor) {
    TensorRecord& record = *records_[tensor];
    FROSTLINE_CHECK(!record.residency.unpin(), "a simulated tensor was released while in use");
    const ResidencyState state = record.residency.load();
    if (state.written && state.pins == 0) {
        FROSTLINE_CHECK(record.residency.clear_written(), "a tensor moved while it was written");
    }
}

void SimulatedMemory::erase(TensorIndex tensor) {
    TensorRecord& record = *records_[tensor];
    if (record.residency.load().moving) cancel_move(record);
    FROSTLINE_CHECK(record.residency.release() == Residency::ReleaseResult::retire,
                    "a tensor died while it was in use");
    for (std::size_t i = 0; i < views_.size(); ++i) release_copy(record, static_cast<TierId>(i));
    by_slot_[record.slot] = StepView::kUnknown;
    records_[tensor] = nullptr;
    table_.erase(record);
}

void SimulatedMemory::put_copy(TensorRecord& record, TierId id) {
    record.copies[index_of(id)] = TensorCopy{{id, 0, record.size_bytes}, std::nullopt};
}

void SimulatedMemory::release_copy(TensorRecord& record, TierId id) {
    auto& copy = record.copies[index_of(id)];
    if (!copy) return;
    copy.reset();
    tier(id).used_bytes -= record.size_bytes;
}

void SimulatedMemory::give_up_copy(TensorRecord& record, TierId id, std::uint64_t now_ns) {
    release_copy(record, id);
    schedule_.drops.push_back({whole(tensor_of(record)), tiers_[index_of(id)], now_ns});
}

void SimulatedMemory::cancel_move(TensorRecord& record) {
    const ResidencyState state = record.residency.load();
    links_.cancel(tensor_of(record));
    tier(state.target).used_bytes -= record.size_bytes;
    tier(state.home).leaving_bytes -= record.size_bytes;
    FROSTLINE_CHECK(!record.residency.end_move(), "a simulated tensor was released");
}

// After a change of home. Upwards the slower copy is kept: evicting it again then costs nothing.
void SimulatedMemory::change_home(TensorRecord& record, TierId from, TierId to,
                                  std::uint64_t now_ns) {
    table_.touch(record);
    if (index_of(from) < index_of(to)) give_up_copy(record, from, now_ns);
}

SimulatedMemory::MoveStart SimulatedMemory::move(TensorId id, TierId to,
                                                 SimulatedLinks::Urgency urgency,
                                                 std::uint64_t now_ns) {
    TensorRecord* const record = table_.find(id);
    if (record == nullptr || index_of(to) >= views_.size()) return MoveStart::refused;
    const TierId from = record->residency.load().home;
    if (from == to) return MoveStart::done;
    if (record->copy_in(to) != nullptr) {
        if (!record->residency.begin_move(to)) return MoveStart::refused;
        FROSTLINE_CHECK(record->residency.publish() == Residency::PublishResult::published,
                        "nobody else uses a simulated tensor");
        change_home(*record, from, to, now_ns);
        return MoveStart::done;
    }
    const MachineLink* const path = link(from, to);
    if (path == nullptr || !tier(to).open) return MoveStart::refused;
    if (tier(to).free_bytes() < record->size_bytes) return MoveStart::no_room;
    if (!record->residency.begin_move(to)) return MoveStart::refused;
    tier(to).used_bytes += record->size_bytes;
    tier(from).leaving_bytes += record->size_bytes;
    links_.submit(tensor_of(*record), static_cast<std::size_t>(path - machine_.links.data()),
                  record->size_bytes, urgency);
    return MoveStart::started;
}

bool SimulatedMemory::drop_copy(TensorId id, TierId from, std::uint64_t now_ns) {
    TensorRecord* const record = table_.find(id);
    if (record == nullptr || record->copy_in(from) == nullptr) return false;
    const ResidencyState state = record->residency.load();
    if (state.home == from || state.moving) return false;
    give_up_copy(*record, from, now_ns);
    return true;
}

void SimulatedMemory::finish(const EndedCopy& copy) {
    TensorRecord& record = *records_[copy.tensor];
    const MachineLink& path = machine_.links[copy.link];
    const TierId from = tier_id(path.from);
    const TierId to = tier_id(path.to);
    schedule_.moves.push_back({whole(copy.tensor), path.from, path.to, copy.start_ns, copy.end_ns});
    tier(from).leaving_bytes -= record.size_bytes;
    put_copy(record, to);
    if (record.residency.publish() == Residency::PublishResult::published) {
        change_home(record, from, to, copy.end_ns);
    } else {
        // A kernel reads it. The copy stays, and makes the next eviction free.
        FROSTLINE_CHECK(!record.residency.end_move(), "a simulated tensor was released");
    }
}

PolicyView SimulatedMemory::view(StepView& step, std::uint32_t kernel,
                                 std::uint64_t prefetch_bytes) const {
    step = {kernel, by_slot_, records_};
    return {table_.by_birth(), table_.by_use(), views_, prefetch_bytes, &step};
}

}  // namespace frostline
