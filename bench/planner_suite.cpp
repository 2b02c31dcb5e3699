// The planner on traces far longer than real ones, and on real ones: what it takes and gives.
#include "bench/media.h"
#include "bench/planning_rows.h"
#include "bench/suite.h"
#include "migration/planning/trace.h"
#include "migration/planning/trace_builder.h"

#include <array>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace frostline::bench {
namespace {

constexpr int kRepetitions = 5;
constexpr double kBudgetSeconds = 1;

// As many tensors as kernels; each kernel reads what the one before it made and something older.
Trace long_trace(std::uint32_t kernels) {
    std::mt19937_64 random(1);  // NOLINT: the same trace in each run
    TraceBuilder builder;
    for (std::uint32_t i = 0; i < kernels; ++i) {
        (void)expect(builder.add_tensor(i, 4096 + random() % (1U << 20), "activation"));
    }
    for (std::uint32_t i = 0; i < kernels; ++i) {
        const std::array<TensorIndex, 2> reads{i == 0 ? 0 : i - 1,
                                               static_cast<TensorIndex>(random() % (i + 1))};
        const std::array<TensorIndex, 1> writes{i};
        expect(builder.add_kernel(1000 + random() % 100000, "layer", reads, writes));
    }
    return expect(builder.finish());
}

Row reading_row() {
    const std::string text = to_text(long_trace(1'000'000));
    std::vector<double> samples;
    for (int i = 0; i < kRepetitions; ++i) {
        samples.push_back(seconds([&] {
            if (expect(parse_trace(text, "bench")).kernels().size() != 1'000'000) {
                throw std::runtime_error("kernels are missing");
            }
        }));
    }
    const Measurement taken = summarize(std::move(samples));
    return {.suite = "planner",
            .name = "read a million kernels",
            .value = taken.median,
            .unit = "s",
            .baseline = "its budget",
            .baseline_value = kBudgetSeconds,
            .ratio = taken.median / kBudgetSeconds,
            .spread = taken.spread,
            .label = "real",
            .bar = 1,
            .at_most = true};
}

}  // namespace

std::vector<Row> planner_suite() {
    std::vector<Row> rows = plan_growth_rows();
    for (Row& each : plan_quality_rows()) rows.push_back(std::move(each));
    rows.push_back(reading_row());
    return rows;
}

}  // namespace frostline::bench
