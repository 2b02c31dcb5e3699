// What a replay judges, as one line of JSON: so that the referee can judge it, too, and that cases
// can be kept.
#pragma once

#include "migration/planning/machine.h"
#include "migration/planning/replay.h"
#include "migration/planning/schedule.h"
#include "migration/planning/trace.h"

#include <string>

namespace frostline {

struct ReplayCase {
    Trace trace;
    Machine machine;
    Schedule schedule;
};

/// What the referee says of a case, in the order of the machine's tiers and links.
struct RefereeVerdict {
    bool legal = false;
    std::string why;
    double step_ns = 0;   ///< rounded to whole nanoseconds
    double slowdown = 0;  ///< rounded to six places
    std::vector<std::uint64_t> peak_bytes;
    std::vector<std::uint64_t> moved_bytes;  ///< over all steps
};

/// One line, without its end.
std::string to_line(const ReplayCase& each);
/// Reads such a line.
ReplayCase case_from_line(const std::string& line);
/// Reads a line that referee_verdicts.py wrote.
RefereeVerdict verdict_from_line(const std::string& line);

/// Replays the case and fails the test where replay and referee do not agree.
void expect_same_verdict(const ReplayCase& each, const RefereeVerdict& referee);

}  // namespace frostline
