// What a suite measures and how it is told: rows with the value, the baseline taken in the same
// run, and the spread. Medians of alternated repetitions, because the machine drifts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace frostline::bench {

/// One figure. `ratio` is value / baseline_value; `spread` is (max - min) / median of the
/// repetitions of the value.
struct Row {
    std::string suite, name;
    double value = 0;
    std::string unit;
    std::string baseline;  ///< what it is compared with; empty if with nothing
    double baseline_value = 0;
    double ratio = 0;
    double spread = 0;
    std::string label;     ///< real, emulated or simulated
    double bar = 0;        ///< what the ratio is to reach; 0: no such bar
    bool at_most = false;  ///< the bar is the most that it may be, not the least

    bool met() const { return at_most ? ratio <= bar : ratio >= bar; }
};

struct Suite {
    std::string_view name, what;
    std::vector<Row> (*run)();
};

/// Every suite in this program.
const std::vector<Suite>& suites();

std::vector<Row> device_suite();
std::vector<Row> heaps_suite();
/// What the suite `heaps` measures on a stream of allocations, for that in the file
/// ("frostline-allocs 1"). Throws std::runtime_error, naming the file and the line.
std::vector<Row> replay_rows(const std::string& path);
std::vector<Row> residency_suite();
std::vector<Row> tiers_suite();
std::vector<Row> pipelines_suite();
std::vector<Row> planner_suite();

/// Median and spread of repeated measurements.
struct Measurement {
    double median = 0;
    double spread = 0;
};
Measurement summarize(std::vector<double> samples);

/// Runs `value` and `baseline` alternately, `repetitions` times each after one warm-up, and
/// summarises both. Each returns one sample.
struct Comparison {
    Measurement value, baseline;
};
Comparison alternate(int repetitions, const std::function<double()>& value,
                     const std::function<double()>& baseline);

/// The row of a comparison.
Row compare_row(std::string suite, std::string name, std::string unit, std::string baseline,
                std::string label, const Comparison& comparison, double bar = 0);

/// Seconds that `work` takes.
double seconds(const std::function<void()>& work);

void print_table(const std::vector<Row>& rows);
/// Writes the rows as a JSON list; false, with a message on standard error, if that fails.
bool write_json(const std::string& path, const std::vector<Row>& rows);

}  // namespace frostline::bench
