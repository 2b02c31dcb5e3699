// What a run prints and writes. Nothing is computed here but sums for people to read.
#pragma once

#include "bench/train/training.h"

namespace frostline::train {

void print_plan(const ModelShape& shape);
/// A row of the table; the first step's comes with the table's head.
void print_step(const StepOutcome& step);
void print_summary(const Options& options, const TrainingOutcome& outcome);

/// Whether the files that the options name could be written, before anything is computed. Errors:
/// those of check_output_file(), naming the option.
Result<void> check_files(const Options& options);
/// The files that the options name. Errors: io, naming the file.
Result<void> write_files(const Options& options, const TrainingOutcome& outcome);

}  // namespace frostline::train
