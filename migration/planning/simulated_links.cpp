// When copies start, and how fast they run.
#include "migration/planning/simulated_links.h"

#include <algorithm>
#include <cmath>

namespace frostline {
namespace {

// A copy starts with what others leave of its link, if that is at least this part of what it could
// have alone: a slow disk must not hold up a bus, nor a copy creep on what little is left of one.
constexpr double kLeastShare = 0.5;

}  // namespace

SimulatedLinks::SimulatedLinks(const Machine& machine, std::size_t tensors)
    : machine_(machine), links_(machine.links.size()), places_(tensors) {}

void SimulatedLinks::submit(TensorIndex tensor, std::size_t link, std::uint64_t size_bytes,
                            Urgency urgency) {
    const Rank rank{urgency, submitted_++};
    links_[link].waiting.emplace(rank, Waiting{tensor, size_bytes});
    places_[tensor] = Place{link, rank};
    ++copies_;
}

void SimulatedLinks::raise(TensorIndex tensor) {
    auto& place = places_[tensor];
    if (!place) return;
    auto entry = links_[place->link].waiting.extract(place->rank);
    if (entry.empty()) return;
    place->rank.first = Urgency::demand;
    entry.key() = place->rank;
    links_[place->link].waiting.insert(std::move(entry));
}

void SimulatedLinks::cancel(TensorIndex tensor) {
    const auto place = std::exchange(places_[tensor], std::nullopt);
    if (!place) return;
    Link& link = links_[place->link];
    if (link.running && link.running->tensor == tensor) {
        link.running.reset();
    } else {
        link.waiting.erase(place->rank);
    }
    --copies_;
}

void SimulatedLinks::start(std::uint64_t now_ns) {
    // The most urgent of all links first, because links share resources.
    std::vector<std::pair<Rank, std::size_t>> heads;
    for (std::size_t i = 0; i < links_.size(); ++i) {
        const Link& link = links_[i];
        if (!link.running && !link.waiting.empty()) {
            heads.emplace_back(link.waiting.begin()->first, i);
        }
    }
    std::sort(heads.begin(), heads.end());
    for (const auto& [rank, link] : heads) (void)try_start(link, now_ns);
}

bool SimulatedLinks::try_start(std::size_t index, std::uint64_t now_ns) {
    Link& link = links_[index];
    const MachineLink& described = machine_.links[index];
    const double rate = free_bytes_per_second(described);
    if (rate < kLeastShare * machine_.bytes_per_second(described)) return false;
    const Waiting& next = link.waiting.begin()->second;
    const double busy_ns =
        std::max(1.0, std::ceil(static_cast<double>(next.size_bytes) * 1e9 / rate));
    link.running = Running{next.tensor, now_ns,
                           now_ns + described.latency_ns + static_cast<std::uint64_t>(busy_ns),
                           static_cast<double>(next.size_bytes) * 1e9 / busy_ns};
    link.waiting.erase(link.waiting.begin());
    return true;
}

double SimulatedLinks::free_bytes_per_second(const MachineLink& link) const {
    double least = machine_.bytes_per_second(link);
    for (const ResourceIndex resource : link.resources) {
        double free = machine_.resources[resource].bytes_per_second;
        for (std::size_t i = 0; i < links_.size(); ++i) {
            const auto& loaded = machine_.links[i].resources;
            if (links_[i].running &&
                std::find(loaded.begin(), loaded.end(), resource) != loaded.end()) {
                free -= links_[i].running->bytes_per_second;
            }
        }
        least = std::min(least, free);
    }
    return least;
}

std::optional<std::uint64_t> SimulatedLinks::next_end_ns() const noexcept {
    std::optional<std::uint64_t> next;
    for (const Link& link : links_) {
        if (link.running && (!next || link.running->end_ns < *next)) next = link.running->end_ns;
    }
    return next;
}

std::optional<EndedCopy> SimulatedLinks::take_ended(std::uint64_t now_ns) noexcept {
    for (std::size_t i = 0; i < links_.size(); ++i) {
        auto& running = links_[i].running;
        if (!running || running->end_ns > now_ns) continue;
        const EndedCopy ended{running->tensor, i, running->start_ns, running->end_ns};
        places_[ended.tensor].reset();
        running.reset();
        --copies_;
        return ended;
    }
    return std::nullopt;
}

}  // namespace frostline
