// A slot with less than a byte left is full, and is skipped from then on.
#include "migration/planning/link_calendar.h"

#include <algorithm>
#include <numeric>

namespace frostline {
namespace {

// Halves the path on the way, so that later walks are short.
std::int32_t root(std::vector<std::int32_t>& skips, std::int32_t at) noexcept {
    const auto next = [&](std::int32_t i) -> std::int32_t& {
        return skips[static_cast<std::size_t>(i)];
    };
    while (next(at) != at) {
        next(at) = next(next(at));
        at = next(at);
    }
    return at;
}

}  // namespace

LinkCalendar::LinkCalendar(const Machine& machine, const PlanTimeline& timeline,
                           std::uint32_t steps)
    : machine_(&machine), slots_(timeline.size() * steps) {
    const auto slots = static_cast<std::size_t>(slots_);
    links_by_resource_.resize(machine.resources.size());
    for (std::size_t i = 0; i < machine.links.size(); ++i) {
        for (const ResourceIndex resource : machine.links[i].resources) {
            links_by_resource_[resource].push_back(static_cast<LinkIndex>(i));
        }
    }
    Skips none(slots + 1);
    std::iota(none.begin(), none.end(), 0);
    later_.assign(machine.links.size(), none);
    earlier_.assign(machine.links.size(), none);
    for (const MachineResource& resource : machine.resources) {
        std::vector<double>& free = free_.emplace_back();
        free.reserve(slots);
        for (std::uint32_t step = 0; step < steps; ++step) {
            for (const PlanSlot& slot : timeline.slots()) {
                free.push_back(static_cast<double>(slot.duration_ns) * resource.bytes_per_second /
                               1e9);
            }
        }
    }
    for (ResourceIndex resource = 0; resource < free_.size(); ++resource) {
        for (SlotIndex slot = 0; slot < slots_; ++slot) {
            if (free_[resource][static_cast<std::size_t>(slot)] < 1) note_full(resource, slot);
        }
    }
}

std::int64_t LinkCalendar::free_bytes(LinkIndex link, SlotIndex slot) const noexcept {
    double least = 9e18;  // nearly what an integer holds
    for (const ResourceIndex resource : machine_->links[link].resources) {
        least = std::min(least, free_[resource][static_cast<std::size_t>(slot)]);
    }
    return std::max<std::int64_t>(0, static_cast<std::int64_t>(least));
}

void LinkCalendar::take(LinkIndex link, SlotIndex slot, std::int64_t bytes) noexcept {
    for (const ResourceIndex resource : machine_->links[link].resources) {
        double& free = free_[resource][static_cast<std::size_t>(slot)];
        const bool was_full = free < 1;
        free -= static_cast<double>(bytes);
        if (!was_full && free < 1) note_full(resource, slot);
    }
}

void LinkCalendar::note_full(ResourceIndex resource, SlotIndex slot) noexcept {
    const auto at = static_cast<std::int32_t>(slot);
    for (const LinkIndex link : links_by_resource_[resource]) {
        later_[link][static_cast<std::size_t>(at)] = at + 1;
        earlier_[link][static_cast<std::size_t>(at) + 1] = at;
    }
}

SlotIndex LinkCalendar::first_free(LinkIndex link, SlotIndex from) noexcept {
    return root(later_[link], static_cast<std::int32_t>(from));
}

SlotIndex LinkCalendar::last_free(LinkIndex link, SlotIndex from) noexcept {
    return root(earlier_[link], static_cast<std::int32_t>(from) + 1) - 1;
}

}  // namespace frostline
