// Uses by tensor and by kernel say the same as the trace.
#include "migration/planning/tensor_uses.h"
#include "tests/migration/planning/random_step.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace frostline {
namespace {

TEST(TensorUses, SayTheSameAsTheTrace) {
    auto random = random_stream(623);
    for (int round = 0; round < 500; ++round) {
        const RandomStep step = make_random_step(random);
        const Trace& trace = step.trace;
        const TensorUses uses(trace);
        std::vector<std::vector<TensorUse>> wanted(trace.tensors().size());
        for (KernelIndex kernel = 0; kernel < trace.kernels().size(); ++kernel) {
            const std::set<TensorIndex> used(trace.uses(kernel).begin(), trace.uses(kernel).end());
            const auto writes = trace.writes(kernel);
            const auto told = uses.tensors(kernel);
            ASSERT_EQ(told.size(), used.size()) << "each tensor once";
            ASSERT_EQ(std::set<TensorIndex>(told.begin(), told.end()), used);
            for (TensorIndex tensor = 0; tensor < trace.tensors().size(); ++tensor) {
                ASSERT_EQ(uses.uses(kernel, tensor), used.contains(tensor));
                if (!used.contains(tensor)) continue;
                wanted[tensor].push_back(
                    {kernel, std::find(writes.begin(), writes.end(), tensor) != writes.end()});
            }
        }
        for (TensorIndex tensor = 0; tensor < trace.tensors().size(); ++tensor) {
            const auto told = uses.of(tensor);
            ASSERT_TRUE(std::equal(told.begin(), told.end(), wanted[tensor].begin(),
                                   wanted[tensor].end(), [](const auto& a, const auto& b) {
                                       return a.kernel == b.kernel && a.writes == b.writes;
                                   }));
            ASSERT_EQ(uses.is_ever_written(tensor),
                      std::any_of(wanted[tensor].begin(), wanted[tensor].end(),
                                  [](const TensorUse& use) { return use.writes; }));
        }
    }
}

}  // namespace
}  // namespace frostline
