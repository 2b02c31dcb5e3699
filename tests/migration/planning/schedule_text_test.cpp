// Proves that a schedule's text is read to the letter, whether or not the schedule is legal.
#include "migration/planning/schedule.h"

#include "tests/tiers/scratch_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>

namespace frostline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ScheduleText : public ::testing::Test {
   protected:
    static Trace made_trace() {
        Result<Trace> trace = parse_trace(
            "frostline-trace 1\ntensor 0 10 weight\ntensor 77 20 a\n"
            "kernel 0 5 k 0 77\nkernel 1 5 k 77 -\n",
            "trace");
        EXPECT_TRUE(trace) << trace.error().message();
        return *std::move(trace);
    }
    static Machine made_machine() { return {.tiers = {{"gpu", 100}, {"dram", 100}}}; }
    Result<Schedule> parse(const std::string& lines) const {
        return parse_schedule("frostline-schedule 1\n" + lines, "s", trace_, machine_);
    }

    const Trace trace_ = made_trace();
    const Machine machine_ = made_machine();
};

TEST_F(ScheduleText, is_read_to_the_letter_and_comes_back) {
    // Neither times nor ranges make sense: that is not for the reader to say.
    const std::string text =
        "frostline-schedule 1\n"
        "init 0 2 8 dram\n"
        "kernel 4294967294 1 4611686018427387904\n"
        "move 77 20 0 gpu dram 7 3\n"
        "move 0 4611686018427387904 4611686018427387904 dram dram 0 0\n"
        "drop 77 1 2 gpu 9\n";
    const Result<Schedule> read = parse_schedule(text, "s", trace_, machine_);
    ASSERT_TRUE(read) << read.error().message();
    constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
    const Schedule expected{.init = {{{0, 2, 8}, 1}},
                            .kernels = {{4294967294, 1, kMost}},
                            .moves = {{{1, 20, 0}, 0, 1, 7, 3}, {{0, kMost, kMost}, 1, 1, 0, 0}},
                            .drops = {{{1, 1, 2}, 0, 9}}};
    EXPECT_EQ(*read, expected);
    EXPECT_EQ(to_text(*read, trace_, machine_), text);
}

TEST_F(ScheduleText, nothing_is_a_schedule_too) {
    const Result<Schedule> read = parse("# idle\r\n\n");
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(*read, Schedule());
    EXPECT_EQ(to_text(*read, trace_, machine_), "frostline-schedule 1\n");
}

TEST_F(ScheduleText, what_is_no_schedule_is_refused_with_its_line) {
    struct Refused {
        const char* line;
        const char* words;
    };
    const Refused refused[] = {
        {"moves 0 0 1 gpu dram 1 2", "a line of the kind 'moves'; known are init, kernel"},
        {"tensor 0 10 weight", "kind 'tensor'"},
        {"init 1 0 1 gpu", "the trace has no tensor 1"},
        {"init -1 0 1 gpu", "the tensor is '-1'"},
        {"init 0 -1 1 gpu", "the offset is '-1'"},
        {"init 0 0 -1 gpu", "the size is '-1'"},
        {"init 0 4611686018427387905 1 gpu", "the offset is '4611686018427387905', not a whole"},
        {"init 0 0 99999999999999999999 gpu", "the size is '99999999999999999999'"},
        {"init 0 0 1 ssd", "the machine has no tier 'ssd'"},
        {"init 0 0 1 GPU", "the machine has no tier 'GPU'"},
        {"init 0 0 1", "the line ends before the tier"},
        {"init 0 0", "the line ends before the size"},
        {"init 0", "the line ends before the offset"},
        {"init", "the line ends before the tensor"},
        {"init 0 0 1 gpu 0", "more than the line's kind has: '0'"},
        {"kernel 0 2 5", "the kernel is '2', not a whole number from 0 to 1"},
        {"kernel -1 0 5", "the step is '-1'"},
        {"kernel 4294967295 0 5", "the step is '4294967295'"},
        {"kernel 0 0 -5", "the start is '-5'"},
        {"kernel 0 0 4611686018427387905", "the start is"},
        {"kernel 0 0 1e3", "the start is '1e3'"},
        {"kernel 0 0", "the line ends before the start"},
        {"kernel 0 0 5 5", "more than the line's kind has"},
        {"move 5 0 1 gpu dram 1 2", "the trace has no tensor 5"},
        {"move 0 0 1 gpu tape 1 2", "the machine has no tier 'tape'"},
        {"move 0 0 1 tape gpu 1 2", "the machine has no tier 'tape'"},
        {"move 0 0 1 gpu dram 1 2.5", "the end is '2.5'"},
        {"move 0 0 1 gpu dram 1", "the line ends before the end"},
        {"move 0 0 1 gpu dram 1 2 3", "more than the line's kind has: '3'"},
        {"drop 5 0 1 gpu 1", "the trace has no tensor 5"},
        {"drop 0 0 1 tape 1", "the machine has no tier 'tape'"},
        {"drop 0 0 1 gpu x", "the time is 'x'"},
        {"drop 0 0 1 gpu", "the line ends before the time"},
        {"drop 0 0 1 gpu 1 1", "more than the line's kind has: '1'"},
    };
    for (const Refused& each : refused) {
        SCOPED_TRACE(each.line);
        const auto read = parse(fmt::format("kernel 0 0 0\n# fine\n{}\nkernel 0 1 5\n", each.line));
        ASSERT_FALSE(read);
        EXPECT_EQ(read.error().code(), Errc::invalid_argument);
        EXPECT_THAT(read.error().message(), StartsWith("s:4: "));
        EXPECT_THAT(read.error().message(), HasSubstr(each.words));
        EXPECT_THAT(read.error().message(), Not(HasSubstr("\n")));
    }
    const Result<Schedule> other = parse_schedule("frostline-trace 1\n", "s", trace_, machine_);
    ASSERT_FALSE(other);
    EXPECT_THAT(other.error().message(), StartsWith("s:1: the first line is 'frostline-trace 1'"));
    const Result<Schedule> cut = parse("kernel 0 0 0\nkernel 0 1 5");
    ASSERT_FALSE(cut);
    EXPECT_THAT(cut.error().message(), StartsWith("s:3: the last line has no line end"));
}

TEST_F(ScheduleText, is_read_from_disk) {
    const ScratchFolder folder;
    std::ofstream(folder.file("s")) << "frostline-schedule 1\ndrop 77 1 2 gpu 9\n";
    const Result<Schedule> read = read_schedule(folder.file("s"), trace_, machine_);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(read->drops.size(), 1U);
    EXPECT_EQ(read_schedule(folder.file("none"), trace_, machine_).error().code(), Errc::not_found);
    std::ofstream(folder.file("bad")) << "frostline-schedule 1\n\ndrop 77 1 2 gpu\n";
    EXPECT_THAT(read_schedule(folder.file("bad"), trace_, machine_).error().message(),
                HasSubstr("bad:3: "));
}

}  // namespace
}  // namespace frostline
