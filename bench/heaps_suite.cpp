// The allocators of GPU memory against their bars, on the emulated device.
#include "bench/heaps_rows.h"

#include <fmt/core.h>

#include <cstdlib>
#include <utility>

namespace frostline::bench {

Row heap_row(std::string name, std::string unit, Measurement value, std::string baseline,
             double baseline_value, double bar) {
    return {.suite = "heaps",
            .name = std::move(name),
            .value = value.median,
            .unit = std::move(unit),
            .baseline = std::move(baseline),
            .baseline_value = baseline_value,
            .ratio = baseline_value > 0 ? value.median / baseline_value : 0,
            .spread = value.spread,
            .label = "emulated",
            .bar = bar,
            .at_most = true};
}

std::vector<Row> heaps_suite() {
    double load = 0;
    if (getloadavg(&load, 1) == 1) fmt::print("load average at the start: {:.2f}\n", load);
    std::vector<Row> rows;
    for (const auto& part : {pair_rows, fragmentation_rows, endurance_rows, cost_rows}) {
        for (Row& row : part()) rows.push_back(std::move(row));
    }
    return rows;
}

}  // namespace frostline::bench
