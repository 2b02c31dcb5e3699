// Replay and the independent referee give the same verdict: on cases that are kept here with what
// the referee said of them, and where it lies beside the source tree, on thousands of random ones.
#include "tests/migration/planning/random_case.h"
#include "tests/migration/planning/replay_case.h"
#include "tests/tiers/scratch_folder.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace frostline {
namespace {

std::filesystem::path here() {
    return std::filesystem::path(__FILE__).parent_path();
}

/// The lines of a file, which is to be there.
std::vector<std::string> lines_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    EXPECT_TRUE(file.is_open()) << path;
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
}

/// A quarter of them legal as they are made, the others changed once to three times.
std::vector<std::string> random_cases(std::size_t count, std::mt19937_64& random) {
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < count; ++i) {
        ReplayCase each = make_legal_case(random);
        const std::uint64_t changes = i % 4 == 0 ? 0 : between(random, 1, i % 4);
        for (std::uint64_t k = 0; k < changes; ++k) change_case(each, random);
        lines.push_back(to_line(each));
    }
    return lines;
}

TEST(ReplayReferee, AgreesOnTheRecordedCases) {
    const std::vector<std::string> cases = lines_of(here() / "recorded_cases.jsonl");
    const std::vector<std::string> verdicts = lines_of(here() / "recorded_verdicts.jsonl");
    ASSERT_EQ(cases.size(), verdicts.size());
    ASSERT_GE(cases.size(), 50U);
    for (std::size_t i = 0; i < cases.size(); ++i) {
        SCOPED_TRACE("recorded_cases.jsonl:" + std::to_string(i + 1));
        expect_same_verdict(case_from_line(cases[i]), verdict_from_line(verdicts[i]));
    }
}

TEST(ReplayReferee, AgreesOnRandomCases) {
    const std::filesystem::path referee = here() / "../../../../shared/referee";
    if (!std::filesystem::exists(referee / "referee.py") ||
        std::system("python3 -c pass 2>/dev/null") != 0) {
        GTEST_SKIP() << "no ../shared/referee beside the source tree, or no python3";
    }
    auto random = random_stream(610);
    const std::vector<std::string> cases = random_cases(3000, random);
    const ScratchFolder folder;
    {
        std::ofstream file(folder.file("cases"));
        for (const std::string& each : cases) file << each << '\n';
    }
    const std::string command = "python3 '" + (here() / "referee_verdicts.py").string() + "' '" +
                                referee.string() + "' '" + folder.file("cases") + "' '" +
                                folder.file("verdicts") + "'";
    ASSERT_EQ(std::system(command.c_str()), 0);
    const std::vector<std::string> verdicts = lines_of(folder.file("verdicts"));
    ASSERT_EQ(cases.size(), verdicts.size());
    std::size_t legal = 0;
    for (std::size_t i = 0; i < cases.size() && !HasFailure(); ++i) {
        SCOPED_TRACE("random case " + std::to_string(i) + ": " + cases[i]);
        const RefereeVerdict verdict = verdict_from_line(verdicts[i]);
        legal += verdict.legal ? 1 : 0;
        // The first of four was not changed.
        ASSERT_TRUE(verdict.legal || i % 4 != 0) << "the scheduler erred: " << verdict.why;
        expect_same_verdict(case_from_line(cases[i]), verdict);
    }
    std::printf("%zu random cases, %zu of them legal\n", cases.size(), legal);
}

}  // namespace
}  // namespace frostline
