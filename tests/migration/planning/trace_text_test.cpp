// Proves that a trace's text is read to the letter: what is no trace is refused with its line and
// what is wrong there, and what is one comes back as it was written.
#include "migration/planning/trace.h"

#include "tests/tiers/scratch_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace frostline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kSmall =
    "frostline-trace 1\n"
    "tensor 7 4096 weight\n"
    "tensor 1 100 input\n"
    "tensor 3 200 activation\n"
    "tensor 18446744073709551615 1 workspace\n"
    "kernel 0 1500 forward 7,1 3\n"
    "kernel 1 1 nothing - -\n"
    "kernel 2 2500 update 3,7 7\n"
    "recompute 3 900 1,7\n"
    "recompute 1 5 -\n";

TEST(TraceText, is_read_to_the_letter) {
    const Result<Trace> trace = parse_trace(kSmall, "small");
    ASSERT_TRUE(trace) << trace.error().message();
    ASSERT_EQ(trace->tensors().size(), 4U);
    const TraceTensor& weight = trace->tensors()[0];
    EXPECT_EQ(weight.id, 7U);
    EXPECT_EQ(weight.size_bytes, 4096U);
    EXPECT_EQ(trace->names()[weight.class_name], "weight");
    EXPECT_TRUE(weight.is_weight);
    EXPECT_EQ(weight.first_use, 0U);
    EXPECT_EQ(weight.last_use, 2U);
    EXPECT_FALSE(trace->tensors()[1].is_weight);
    EXPECT_EQ(trace->tensors()[1].last_use, 0U);
    EXPECT_TRUE(trace->tensors()[2].is_used);
    EXPECT_EQ(trace->tensors()[3].id, 18446744073709551615U);
    EXPECT_FALSE(trace->tensors()[3].is_used);
    ASSERT_EQ(trace->kernels().size(), 3U);
    EXPECT_EQ(trace->kernels()[2].duration_ns, 2500U);
    EXPECT_EQ(trace->name(2), "update");
    EXPECT_THAT(trace->reads(0), ElementsAre(0, 1));
    EXPECT_THAT(trace->writes(0), ElementsAre(2));
    EXPECT_THAT(trace->uses(1), IsEmpty());
    EXPECT_THAT(trace->uses(2), ElementsAre(2, 0, 0));
    EXPECT_EQ(trace->ideal_ns(), 4001U);
    ASSERT_EQ(trace->recomputations().size(), 2U);
    EXPECT_EQ(trace->recomputations()[0].tensor, 2U);
    EXPECT_EQ(trace->recomputations()[0].duration_ns, 900U);
    EXPECT_THAT(trace->recomputations()[0].reads, ElementsAre(1, 0));
    EXPECT_THAT(trace->recomputations()[1].reads, IsEmpty());
}

TEST(TraceText, comes_back_as_it_was_written) {
    const Result<Trace> trace = parse_trace(kSmall, "small");
    ASSERT_TRUE(trace) << trace.error().message();
    EXPECT_EQ(to_text(*trace), kSmall);
}

TEST(TraceText, comments_blank_lines_and_spaces_mean_nothing) {
    const Result<Trace> trace = parse_trace(
        "frostline-trace 1 \t\r\n"
        "\n"
        "# tensor 1 bytes are bad \x80\x01\r\n"
        "  \t\r\n"
        "\t#\n"
        "  tensor\t0  4096\t weight \r\n"
        "kernel 0 5 a#b 0 -\n"
        "#",  // not whole, see below
        "spaces");
    ASSERT_FALSE(trace);
    EXPECT_THAT(trace.error().message(), StartsWith("spaces:8: "));
    const Result<Trace> whole = parse_trace(
        "frostline-trace 1 \t\r\n\n# tensor 1 bytes are bad \x80\x01\r\n  \t\r\n\t#\n"
        "  tensor\t0  4096\t weight \r\nkernel 0 5 a#b 0 -\n",
        "spaces");
    ASSERT_TRUE(whole) << whole.error().message();
    EXPECT_EQ(to_text(*whole), "frostline-trace 1\ntensor 0 4096 weight\nkernel 0 5 a#b 0 -\n");
}

TEST(TraceText, a_tensor_named_twice_is_used_once) {
    const Result<Trace> trace = parse_trace(
        "frostline-trace 1\ntensor 4 1 a\ntensor 5 1 a\ntensor 6 1 a\n"
        "kernel 0 1 k 5,4,5,4 4,4\nrecompute 6 1 5,5\n",
        "twice");
    ASSERT_TRUE(trace) << trace.error().message();
    EXPECT_THAT(trace->reads(0), ElementsAre(1, 0));
    EXPECT_THAT(trace->writes(0), ElementsAre(0));
    EXPECT_THAT(trace->recomputations()[0].reads, ElementsAre(1));
}

struct Refused {
    const char* what;
    std::string text;
    int line;
    const char* words;
};

std::string after_header(const std::string& lines) {
    return "frostline-trace 1\n" + lines;
}

// Of tensors 0 and 1, and one kernel.
std::string with_kernel(const std::string& more) {
    return after_header("tensor 0 10 weight\ntensor 1 10 a\nkernel 0 5 k 0 1\n" + more);
}

std::vector<Refused> refused() {
    return {
        {"nothing at all", "", 1, "is empty"},
        {"a first line of something else", "{\"name\": 1}\n", 1, "is '{\"name\": 1}', not"},
        {"another version", "frostline-trace 2\n", 1, "'frostline-trace 2', not"},
        {"a first line and more", "frostline-trace 1 x\n", 1, "not 'frostline-trace 1'"},
        {"a first line that is cut", "frostline-trace 1", 1, "no line end"},
        {"bytes that are no text",
         "\x7f"
         "ELF\x02\x01\n",
         1, "'?ELF"},
        {"no kernels", after_header("tensor 0 1 a\n"), 2, "no kernels"},
        {"an unknown kind", with_kernel("tensors 2 1 a\n"), 5, "kind 'tensors'; known are"},
        {"a kind in capitals", with_kernel("Tensor 2 1 a\n"), 5, "'Tensor'"},
        {"a carriage return in a line", with_kernel("tensor 2 1 a\rb\n"), 5, "'a?b'"},
        {"a zero byte", with_kernel(std::string("tensor 2 1 a\0b\n", 15)), 5, "'a?b'"},
        {"a class that is no ASCII", with_kernel("tensor 2 1 \xc3\xa9\n"), 5, "printable ASCII"},
        {"a name that is no ASCII", with_kernel("kernel 1 1 \xc3\xa9 - -\n"), 5, "the name is"},

        {"an id that is a word", with_kernel("tensor x 1 a\n"), 5, "the id is 'x'"},
        {"a negative id", with_kernel("tensor -2 1 a\n"), 5, "the id is '-2'"},
        {"an id with a sign", with_kernel("tensor +2 1 a\n"), 5, "the id is '+2'"},
        {"a huge id", with_kernel("tensor 18446744073709551616 1 a\n"), 5, "the id is"},
        {"an id again", with_kernel("tensor 1 10 a\n"), 5, "tensor 1 was there before"},
        {"a negative size", with_kernel("tensor 2 -1 a\n"), 5, "the size is '-1'"},
        {"no size", with_kernel("tensor 2 0 a\n"), 5, "the size is '0'"},
        {"a size with a point", with_kernel("tensor 2 1.5 a\n"), 5, "the size is '1.5'"},
        {"a size with a unit", with_kernel("tensor 2 1MiB a\n"), 5, "the size is '1MiB'"},
        {"a size in hex", with_kernel("tensor 2 0x10 a\n"), 5, "the size is '0x10'"},
        {"a huge size", with_kernel("tensor 2 9007199254740993 a\n"), 5,
         "from 1 to 9007199254740992"},
        {"a size beyond numbers", with_kernel("tensor 2 99999999999999999999999 a\n"), 5,
         "the size is '99999999999999999999999'"},
        {"sizes that are huge together", with_kernel("tensor 2 9007199254740973 a\n"), 5,
         "add up to more than 9007199254740992"},
        {"a tensor without class", with_kernel("tensor 2 1\n"), 5, "ends before the class"},
        {"a tensor without size", with_kernel("tensor 2\n"), 5, "ends before the size"},
        {"a tensor without id", with_kernel("tensor \n"), 5, "ends before the id"},
        {"a tensor and more", with_kernel("tensor 2 1 a b\n"), 5,
         "more than the line's kind has: 'b'"},

        {"a kernel again", with_kernel("kernel 0 5 k 0 1\n"), 5, "kernel 1 is expected"},
        {"a kernel left out", with_kernel("kernel 2 5 k 0 1\n"), 5, "kernel 2 stands where"},
        {"a first kernel that is not 0", after_header("kernel 1 5 k - -\n"), 2, "kernel 0 is"},
        {"a negative index", with_kernel("kernel -1 5 k 0 1\n"), 5, "the index is '-1'"},
        {"no duration", with_kernel("kernel 1 0 k 0 1\n"), 5, "the duration is '0'"},
        {"a negative duration", with_kernel("kernel 1 -5 k 0 1\n"), 5, "the duration is '-5'"},
        {"a huge duration", with_kernel("kernel 1 9007199254740993 k 0 1\n"), 5, "the duration is"},
        {"durations that are huge together", with_kernel("kernel 1 9007199254740988 k 0 1\n"), 5,
         "add up to more than 9007199254740992"},
        {"an unknown read", with_kernel("kernel 1 5 k 0,2 1\n"), 5, "tensor 2 is unknown"},
        {"an unknown write", with_kernel("kernel 1 5 k 0 9\n"), 5, "tensor 9 is unknown"},
        {"a tensor after its use", with_kernel("kernel 1 5 k 2 -\ntensor 2 1 a\n"), 5,
         "come before its uses"},
        {"a comma at the end", with_kernel("kernel 1 5 k 0, 1\n"), 5, "the id is ''"},
        {"a comma alone", with_kernel("kernel 1 5 k , 1\n"), 5, "the id is ''"},
        {"commas without an id", with_kernel("kernel 1 5 k 0,,1 1\n"), 5, "the id is ''"},
        {"a negative use", with_kernel("kernel 1 5 k -1 1\n"), 5, "the id is '-1'"},
        {"a dash among ids", with_kernel("kernel 1 5 k 0,- 1\n"), 5, "the id is '-'"},
        {"a kernel without writes", with_kernel("kernel 1 5 k 0\n"), 5, "before the writes"},
        {"a kernel without reads", with_kernel("kernel 1 5 k\n"), 5, "before the reads"},
        {"a kernel without name", with_kernel("kernel 1 5\n"), 5, "before the name"},
        {"a kernel and more", with_kernel("kernel 1 5 k 0 1 1\n"), 5, "'1'; remove it"},
        {"spaces after commas", with_kernel("kernel 1 5 k 0, 1 1\n"), 5, "the id is ''"},
        {"more in the last line", with_kernel("# well\nkernel 1 5 k 0 1 1"), 6, "no line end"},

        {"recomputing an unknown tensor", with_kernel("recompute 5 1 0\n"), 5, "tensor 5 is"},
        {"recomputing from an unknown one", with_kernel("recompute 1 1 5\n"), 5, "tensor 5 is"},
        {"recomputing in no time", with_kernel("recompute 1 0 0\n"), 5, "the duration is '0'"},
        {"recomputing without reads", with_kernel("recompute 1 1\n"), 5, "before the reads"},
        {"recomputing twice", with_kernel("recompute 1 1 0\nrecompute 1 2 0\n"), 6,
         "tensor 1 has a recomputation"},
        {"recomputing from itself", with_kernel("recompute 1 1 0,1\n"), 5, "tensor 1 would"},
        {"recomputing in a circle", with_kernel("recompute 1 1 0\nrecompute 0 1 1\n"), 6,
         "tensor 0 would be recomputed, in the end, from itself"},
        {"a recomputation and more", with_kernel("recompute 1 1 0 0\n"), 5, "'0'; remove it"},
        {"a very long word", with_kernel(fmt::format("{:x<100000}\n", 'x')), 5,
         "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...'"},
    };
}

TEST(TraceText, what_is_no_trace_is_refused_with_its_line) {
    for (const Refused& each : refused()) {
        SCOPED_TRACE(each.what);
        const Result<Trace> trace = parse_trace(each.text, "a.trace");
        ASSERT_FALSE(trace);
        EXPECT_EQ(trace.error().code(), Errc::invalid_argument);
        EXPECT_THAT(trace.error().message(), StartsWith(fmt::format("a.trace:{}: ", each.line)));
        EXPECT_THAT(trace.error().message(), HasSubstr(each.words));
        EXPECT_THAT(trace.error().message(), Not(HasSubstr("\n")));
    }
}

TEST(TraceText, recomputations_stand_in_any_order) {
    const std::string tensors =
        "tensor 0 1 a\ntensor 1 1 a\ntensor 2 1 a\ntensor 3 1 a\n"
        "kernel 0 1 k 0,1,2,3 -\n";
    for (const char* lines : {"recompute 1 1 0\nrecompute 2 1 1\nrecompute 3 1 1,2\n",
                              "recompute 3 1 1,2\nrecompute 2 1 1\nrecompute 1 1 0\n",
                              "recompute 2 1 1\nrecompute 1 1 0\nrecompute 3 1 1,2\n"}) {
        const Result<Trace> trace = parse_trace(after_header(tensors + lines), "t");
        ASSERT_TRUE(trace) << trace.error().message();
        EXPECT_EQ(trace->recomputations().size(), 3U);
        // Whichever line closes the circle, it is found.
        const Result<Trace> circle =
            parse_trace(after_header(tensors + lines + "recompute 0 1 3\n"), "t");
        ASSERT_FALSE(circle);
        EXPECT_THAT(circle.error().message(), StartsWith("t:10: tensor 0 would"));
    }
}

TEST(TraceText, a_cut_text_is_never_taken_for_a_whole_one) {
    const std::string text = kSmall;
    for (std::size_t length = 0; length < text.size(); ++length) {
        const Result<Trace> trace = parse_trace(std::string_view(text).substr(0, length), "cut");
        // Between two lines nothing tells that there were more.
        if (trace) {
            EXPECT_EQ(text[length - 1], '\n') << length;
        } else {
            EXPECT_THAT(trace.error().message(), StartsWith("cut:"));
        }
    }
}

TEST(TraceText, a_message_stays_one_line_whatever_the_file_is_called) {
    const std::string name = fmt::format("{:d<5000}/two\nlines.trace", 'd');
    const Result<Trace> trace = parse_trace("frostline-trace 1\nx\n", name);
    ASSERT_FALSE(trace);
    const std::string message = trace.error().message();
    EXPECT_THAT(message, StartsWith("...ddd"));
    EXPECT_THAT(message, HasSubstr("/two?lines.trace:2: a line of the kind 'x'"));
    EXPECT_THAT(message, HasSubstr("recompute"));  // to its end
}

TEST(TraceFile, is_read_from_disk_and_pipes) {
    const ScratchFolder folder;
    std::ofstream(folder.file("a.trace")) << kSmall;
    const Result<Trace> trace = read_trace(folder.file("a.trace"));
    ASSERT_TRUE(trace) << trace.error().message();
    EXPECT_EQ(to_text(*trace), kSmall);
    ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
    std::thread writer([&] { std::ofstream(folder.file("pipe")) << kSmall; });
    const Result<Trace> piped = read_trace(folder.file("pipe"));
    writer.join();
    ASSERT_TRUE(piped) << piped.error().message();
    EXPECT_EQ(to_text(*piped), kSmall);
}

TEST(TraceFile, what_cannot_be_read_is_named) {
    const ScratchFolder folder;
    const Result<Trace> missing = read_trace(folder.file("none.trace"));
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code(), Errc::not_found);
    EXPECT_THAT(missing.error().message(), HasSubstr("none.trace: cannot be opened: No such file"));
    const Result<Trace> directory = read_trace(folder.path());
    ASSERT_FALSE(directory);
    EXPECT_EQ(directory.error().code(), Errc::invalid_argument);
    EXPECT_THAT(directory.error().message(), HasSubstr("Is a directory"));
    const Result<Trace> broken = read_trace("/proc/self/mem");  // reading its first page fails
    ASSERT_FALSE(broken);
    EXPECT_EQ(broken.error().code(), Errc::io);
    std::ofstream(folder.file("bad.trace")) << "frostline-trace 1\nx\n";
    const Result<Trace> bad = read_trace(folder.file("bad.trace"));
    ASSERT_FALSE(bad);
    EXPECT_THAT(bad.error().message(), HasSubstr("bad.trace:2: "));
}

}  // namespace
}  // namespace frostline
