// Proves what FutureUses says of a trace, against a search through the trace itself.
#include "migration/planning/future_uses.h"

#include "tests/migration/planning/random_training.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace frostline {
namespace {

bool uses_tensor(const Trace& trace, KernelIndex kernel, TensorIndex tensor) {
    const auto uses = trace.uses(kernel);
    return std::find(uses.begin(), uses.end(), tensor) != uses.end();
}

// Through this step, and for what lives on through the next one.
std::uint64_t searched_next_use(const Trace& trace, TensorIndex tensor, KernelIndex kernel) {
    const std::uint64_t kernels = trace.kernels().size();
    const std::uint64_t end = trace.tensors()[tensor].is_weight ? 2 * kernels : kernels;
    for (std::uint64_t next = kernel + std::uint64_t{1}; next < end; ++next) {
        if (uses_tensor(trace, static_cast<KernelIndex>(next % kernels), tensor)) return next;
    }
    return FutureUses::kNever;
}

TEST(FutureUses, AgreesWithASearchThroughTheTrace) {
    auto random = random_stream(20);
    for (int round = 0; round < 50; ++round) {
        const Trace trace = RandomTraining(random).trace;
        const FutureUses uses(trace);
        ASSERT_EQ(uses.kernels(), trace.kernels().size());
        ASSERT_EQ(uses.tensors(), trace.tensors().size());
        for (KernelIndex kernel = 0; kernel < uses.kernels(); ++kernel) {
            const auto listed = uses.tensors(kernel);
            for (TensorIndex tensor = 0; tensor < uses.tensors(); ++tensor) {
                ASSERT_EQ(uses.next_use(tensor, kernel), searched_next_use(trace, tensor, kernel));
                const auto count = std::count(listed.begin(), listed.end(), tensor);
                ASSERT_EQ(count, uses_tensor(trace, kernel, tensor) ? 1 : 0);
            }
        }
        ASSERT_EQ(uses.start_ns(0), 0U);
        ASSERT_EQ(uses.start_ns(uses.kernels()), trace.ideal_ns());
    }
}

}  // namespace
}  // namespace frostline
