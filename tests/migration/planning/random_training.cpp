// How the random steps are drawn.
#include "tests/migration/planning/random_training.h"

#include "migration/planning/trace_builder.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace frostline {
namespace {

struct Layer {
    TensorIndex weight = 0;
    TensorIndex saved = 0;
};

class TraceMaker {
   public:
    explicit TraceMaker(std::mt19937_64& random) : random_(random) {}

    Trace make() {
        const std::uint64_t layers = between(random_, 1, 12);
        TensorIndex input = tensor("input");
        for (std::uint64_t i = 0; i < layers; ++i) {
            // Sometimes a weight serves several layers.
            const bool shared = !layers_.empty() && between(random_, 0, 4) == 0;
            const TensorIndex weight = shared ? layers_[0].weight : tensor("weight");
            const TensorIndex output = tensor("activation");
            std::vector<TensorIndex> reads{weight, input};
            if (!layers_.empty() && between(random_, 0, 3) == 0) {
                reads.push_back(layers_[between(random_, 0, layers_.size() - 1)].saved);
            }
            std::vector<TensorIndex> writes{output};
            if (between(random_, 0, 2) == 0) writes.push_back(tensor("workspace"));
            kernel(reads, writes);
            layers_.push_back({weight, output});
            input = output;
        }
        TensorIndex gradient = tensor("activation");
        kernel({input}, {gradient});
        for (std::size_t i = layers_.size(); i-- > 0;) {
            const TensorIndex next = tensor("activation");
            kernel({gradient, layers_[i].saved, layers_[i].weight}, {next});
            gradient = next;
            if (between(random_, 0, 1) == 0) kernel({gradient}, {layers_[i].weight});
        }
        return *builder_.finish();
    }

   private:
    TensorIndex tensor(const char* class_name) {
        return *builder_.add_tensor(id_++, between(random_, 1, 100), class_name);
    }
    void kernel(const std::vector<TensorIndex>& reads, const std::vector<TensorIndex>& writes) {
        const bool added =
            builder_.add_kernel(between(random_, 1, 300), "kernel", reads, writes).has_value();
        EXPECT_TRUE(added);
    }

    std::mt19937_64& random_;
    TraceBuilder builder_;
    std::uint64_t id_ = 0;
    std::vector<Layer> layers_;
};

std::uint64_t largest_kernel_bytes(const Trace& trace) {
    std::uint64_t largest = 0;
    for (KernelIndex kernel = 0; kernel < trace.kernels().size(); ++kernel) {
        std::vector<TensorIndex> uses(trace.uses(kernel).begin(), trace.uses(kernel).end());
        std::sort(uses.begin(), uses.end());
        uses.erase(std::unique(uses.begin(), uses.end()), uses.end());
        std::uint64_t bytes = 0;
        for (const TensorIndex tensor : uses) bytes += trace.tensors()[tensor].size_bytes;
        largest = std::max(largest, bytes);
    }
    return largest;
}

Machine machine_for(const Trace& trace, std::mt19937_64& random) {
    const std::uint64_t least = largest_kernel_bytes(trace);
    const auto rate = [&] { return static_cast<double>(between(random, 1, 4000)) * 1e6; };
    const std::uint64_t device = between(random, least, 2 * least + 200);
    Machine machine = between(random, 0, 1) == 0
                          ? machine_with(device, rate(), {rate(), rate()})
                          : machine_with(device, rate(), {rate(), rate(), rate()});
    for (MachineLink& link : machine.links) link.latency_ns = between(random, 0, 20);
    // All tiers but the last may be full at times.
    for (std::size_t i = 1; i + 1 < machine.tiers.size(); ++i) {
        machine.tiers[i].size_bytes = between(random, 1, 600);
    }
    return machine;
}

}  // namespace

RandomTraining::RandomTraining(std::mt19937_64& random)
    : trace(TraceMaker(random).make()), machine(machine_for(trace, random)) {}

Machine machine_with(std::uint64_t device_bytes, double bus_bytes_per_second,
                     std::initializer_list<double> rates, std::uint64_t lower_bytes) {
    Machine machine;
    machine.tiers.push_back({"gpu", device_bytes});
    machine.resources = {{"bus_out", bus_bytes_per_second}, {"bus_in", bus_bytes_per_second}};
    for (const double rate : rates) {
        const auto tier = static_cast<TierIndex>(machine.tiers.size());
        const auto write = static_cast<ResourceIndex>(machine.resources.size());
        const std::string name = "below" + std::to_string(tier);
        machine.tiers.push_back({name, lower_bytes});
        machine.resources.push_back({name + "_write", rate});
        machine.resources.push_back({name + "_read", rate});
        machine.links.push_back({0, tier, {0, write}, 0});
        machine.links.push_back({tier, 0, {1, write + 1}, 0});
    }
    return machine;
}

}  // namespace frostline
