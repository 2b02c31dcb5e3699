// The parts of the suite `heaps`, each of which starts an emulated GPU of its own.
#pragma once

#include "bench/suite.h"

#include <string>
#include <vector>

namespace frostline::bench {

/// Allocating and freeing, one thread and two, beside jemalloc and mimalloc.
std::vector<Row> pair_rows();
/// Peak of mapped memory over peak of living bytes, beside PyTorch's rules.
std::vector<Row> fragmentation_rows();
/// A million steps of random sizes, and the records that blocks take.
std::vector<Row> endurance_rows();
/// What growing, stitching, trimming and asking for figures cost.
std::vector<Row> cost_rows();

/// A row of `heaps`, whose ratio is to be at most `bar`, if that is not 0.
Row heap_row(std::string name, std::string unit, Measurement value, std::string baseline,
             double baseline_value, double bar = 0);

}  // namespace frostline::bench
