// Statistics, the table and the JSON of the suites.
#include "bench/suite.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <utility>

namespace frostline::bench {

Measurement summarize(std::vector<double> samples) {
    std::sort(samples.begin(), samples.end());
    const std::size_t middle = samples.size() / 2;
    const double median =
        samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
    return {median, median > 0 ? (samples.back() - samples.front()) / median : 0};
}

Comparison alternate(int repetitions, const std::function<double()>& value,
                     const std::function<double()>& baseline) {
    std::vector<double> values;
    std::vector<double> baselines;
    (void)value();
    (void)baseline();
    for (int i = 0; i < repetitions; ++i) {
        values.push_back(value());
        baselines.push_back(baseline());
    }
    return {summarize(std::move(values)), summarize(std::move(baselines))};
}

Row compare_row(std::string suite, std::string name, std::string unit, std::string baseline,
                std::string label, const Comparison& comparison, double bar) {
    const double against = comparison.baseline.median;
    return {std::move(suite),
            std::move(name),
            comparison.value.median,
            std::move(unit),
            std::move(baseline),
            against,
            against > 0 ? comparison.value.median / against : 0,
            comparison.value.spread,
            std::move(label),
            bar};
}

double seconds(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void print_table(const std::vector<Row>& rows) {
    fmt::print("{:<44} {:>10} {:<8} {:>10} {:>9} {:>14} {:>7}  {:<9} {}\n", "name", "median",
               "unit", "baseline", "ratio", "bar", "spread", "label", "compared with");
    for (const Row& row : rows) {
        const std::string bar = row.bar == 0
                                    ? ""
                                    : fmt::format("{}{:.4g} {}", row.at_most ? "<=" : ">=", row.bar,
                                                  row.met() ? "met" : "missed");
        fmt::print("{:<44} {:>10.2f} {:<8} {:>10.2f} {:>9.4g} {:>14} {:>6.0f}%  {:<9} {}\n",
                   row.name, row.value, row.unit, row.baseline_value, row.ratio, bar,
                   row.spread * 100, row.label, row.baseline);
    }
}

bool write_json(const std::string& path, const std::vector<Row>& rows) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Row& row : rows) {
        list.push_back({{"suite", row.suite},
                        {"name", row.name},
                        {"value", row.value},
                        {"unit", row.unit},
                        {"baseline", row.baseline},
                        {"baseline_value", row.baseline_value},
                        {"ratio", row.ratio},
                        {"spread", row.spread},
                        {"label", row.label},
                        {"bar", row.bar},
                        {"bar_is", row.at_most ? "at most" : "at least"}});
    }
    std::ofstream file(path);
    file << list.dump(2) << '\n';
    file.close();
    if (file.fail()) fmt::print(stderr, "frostline_bench: error: cannot write '{}'\n", path);
    return !file.fail();
}

}  // namespace frostline::bench
