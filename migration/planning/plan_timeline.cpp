// Slots of one stall or kernel are as long as each other, to a nanosecond.
#include "migration/planning/plan_timeline.h"

#include <algorithm>

namespace frostline {

PlanTimeline::PlanTimeline(const Trace& trace, std::span<const std::uint64_t> stall_ns,
                           std::uint64_t longest_slot_ns) {
    const std::size_t kernels = trace.kernels().size();
    first_slots_.reserve(kernels + 1);
    kernel_slots_.reserve(kernels);
    const auto parts = [&](std::uint64_t duration_ns) {
        return (duration_ns + longest_slot_ns - 1) / longest_slot_ns;
    };
    for (std::size_t i = 0; i < kernels; ++i) {
        const auto kernel = static_cast<KernelIndex>(i);
        first_slots_.push_back(size());
        add(kernel, true, stall_ns[i], parts(stall_ns[i]));
        kernel_slots_.push_back(size());
        const std::uint64_t duration_ns = trace.kernels()[i].duration_ns;
        add(kernel, false, duration_ns, std::max<std::uint64_t>(1, parts(duration_ns)));
    }
    first_slots_.push_back(size());
}

void PlanTimeline::add(KernelIndex kernel, bool is_stall, std::uint64_t duration_ns,
                       std::uint64_t parts) {
    std::uint64_t start_ns = 0;
    for (std::uint64_t i = 0; i < parts; ++i) {
        const std::uint64_t end_ns = start_ns + (duration_ns - start_ns) / (parts - i);
        slots_.push_back({kernel, is_stall, start_ns, end_ns - start_ns});
        start_ns = end_ns;
    }
}

}  // namespace frostline
