// One line for each policy.
#include "migration/policies/policy_catalogue.h"

#include "migration/planning/future_uses.h"
#include "migration/planning/tiers_by_speed.h"
#include "migration/policies/belady_policy.h"
#include "migration/policies/fifo_offload_policy.h"
#include "migration/policies/g10_policy.h"
#include "migration/policies/lru_policy.h"
#include "migration/policies/lru_prefetch_policy.h"
#include "migration/policies/on_demand_policy.h"

#include <fmt/format.h>

#include <array>
#include <new>

namespace frostline {
namespace {

using MadePolicy = Result<std::unique_ptr<const Policy>>;

struct Entry {
    std::string_view name;
    MadePolicy (*make)(const Trace& trace, const Machine& machine);
};

template <class AnyPolicy>
MadePolicy make_reactive(const Trace& /*trace*/, const Machine& /*machine*/) {
    return std::unique_ptr<const Policy>(std::make_unique<AnyPolicy>());
}

template <class AnyPolicy>
MadePolicy make_foreseeing(const Trace& trace, const Machine& /*machine*/) {
    return std::unique_ptr<const Policy>(
        std::make_unique<AnyPolicy>(std::make_shared<const FutureUses>(trace)));
}

MadePolicy make_g10(const Trace& trace, const Machine& machine) {
    FROSTLINE_TRY(const auto tiers, tiers_by_speed(machine));
    return std::unique_ptr<const Policy>(
        std::make_unique<G10Policy>(std::make_shared<const FutureUses>(trace), machine, tiers));
}

constexpr std::array kEntries{
    Entry{"lru-on-demand", make_reactive<OnDemandPolicy>},
    Entry{"lru", make_reactive<LruPolicy>},
    Entry{"lru-prefetch", make_foreseeing<LruPrefetchPolicy>},
    Entry{"belady", make_foreseeing<BeladyPolicy>},
    Entry{"fifo-offload", make_foreseeing<FifoOffloadPolicy>},
    Entry{"g10", make_g10},
};

constexpr auto kNames = [] {
    std::array<std::string_view, kEntries.size()> names;
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = kEntries[i].name;
    return names;
}();

}  // namespace

std::span<const std::string_view> policy_names() noexcept {
    return kNames;
}

MadePolicy make_policy(std::string_view name, const Trace& trace, const Machine& machine) noexcept {
    try {
        for (const Entry& entry : kEntries) {
            if (entry.name == name) return entry.make(trace, machine);
        }
        return Error(Errc::invalid_argument, 0, "there is no policy '{}'; there are {}", name,
                     fmt::join(kNames, ", "));
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "no memory to make the policy '{}'", name);
    }
}

}  // namespace frostline
