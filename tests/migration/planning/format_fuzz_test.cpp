// Proves that no text harms the readers: what is made of valid texts by random changes is either
// read, as something that keeps the rules of its type and comes back from its own text, or refused
// with file and line. Memory that runs out at any moment is an error like others.
#include "migration/planning/machine.h"
#include "migration/planning/schedule.h"
#include "migration/planning/trace.h"
#include "tests/tiers/allocation_faults.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace frostline {
namespace {

constexpr int kTexts = 20000;

constexpr std::string_view kTrace =
    "frostline-trace 1\n# a step\ntensor 0 4096 weight\ntensor 3 100 input\ntensor 2 200 a\n"
    "tensor 9 1 workspace\nkernel 0 1500 forward 0,3 2\nkernel 1 1 nothing - -\n"
    "kernel 2 2500 update 2,0 0,9\nrecompute 2 900 3,0\nrecompute 9 5 2\n";

constexpr std::string_view kMachine =
    "{\n\"name\": \"m\", \"device\": \"gpu\",\n\"tiers\": [\n{\"name\": \"gpu\", \"bytes\": "
    "4000},\n"
    "{\"name\": \"dram\", \"bytes\": 1e12}\n],\n\"resources\": {\"out\": 15754000000,\n"
    "\"in\": 1.5e9},\n\"links\": [\n{\"from\": \"gpu\", \"to\": \"dram\", \"resources\": "
    "[\"out\"], \"latency_ns\": 5000},\n{\"from\": \"dram\", \"to\": \"gpu\", \"resources\": "
    "[\"in\"]}\n]\n}\n";

constexpr std::string_view kSchedule =
    "frostline-schedule 1\ninit 0 0 4096 gpu\ninit 0 0 96 dram\nkernel 0 0 0\nkernel 0 1 1500\n"
    "# out and back\nmove 2 0 100 gpu dram 1600 9000\ndrop 2 0 100 gpu 9000\n"
    "move 2 0 100 dram gpu 9000 19000\nkernel 0 2 20000\n";

// What texts of these formats are made of, and what readers may stumble over.
constexpr std::string_view kPieces[] = {"0",
                                        "1",
                                        "-1",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "9007199254740992",
                                        "1e999",
                                        "0.5",
                                        "-",
                                        ",",
                                        " ",
                                        "\t",
                                        "\n",
                                        "\r\n",
                                        "#",
                                        "\"",
                                        "\\",
                                        "\\u0000",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ":",
                                        "null",
                                        "tensor",
                                        "kernel",
                                        "recompute",
                                        "weight",
                                        "gpu",
                                        "move",
                                        "drop",
                                        "init",
                                        "\xff",
                                        "\xc3\xa9",
                                        "\"tiers\"",
                                        "\"bytes\": 1",
                                        "frostline-trace 1",
                                        "[[[[[[[[[[[[[[[[[[[[[[[["};

class Mutator {
   public:
    explicit Mutator(std::uint64_t stream) : random_(random_stream(stream)) {}

    std::string mutated(std::string_view valid) {
        std::string text(valid);
        const std::uint64_t changes = between(random_, 1, 3);
        for (std::uint64_t i = 0; i < changes; ++i) change(text);
        return text;
    }

   private:
    void change(std::string& text) {
        const std::size_t at = between(random_, 0, text.size());
        const std::size_t length = between(random_, 0, std::min<std::size_t>(text.size() - at, 12));
        switch (between(random_, 0, 6)) {
            case 0:
                text.erase(at, length);
                break;
            case 1:
                text.resize(at);
                break;
            case 2:
                text.insert(at, text.substr(between(random_, 0, text.size()), 30));
                break;
            case 3:
                if (at < text.size()) text[at] = static_cast<char>(between(random_, 0, 255));
                break;
            case 4:
                swap_lines(text, at);
                break;
            default:
                text.replace(at, length, kPieces[between(random_, 0, std::size(kPieces) - 1)]);
        }
    }
    // The line in which `at` lies goes to the front of the next one.
    static void swap_lines(std::string& text, std::size_t at) {
        const std::size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
        const std::size_t end = text.find('\n', at);
        if (end == std::string::npos) return;
        const std::size_t next = text.find('\n', end + 1);
        if (next == std::string::npos) return;
        std::rotate(text.begin() + static_cast<std::ptrdiff_t>(begin),
                    text.begin() + static_cast<std::ptrdiff_t>(end + 1),
                    text.begin() + static_cast<std::ptrdiff_t>(next + 1));
    }

    std::mt19937_64 random_;
};

// "fuzz:LINE: words" on one line, of a line that the text has.
bool names_its_line(const Error& error, std::string_view text) {
    std::string_view message = error.message();
    if (!message.starts_with("fuzz:")) return false;
    message.remove_prefix(5);
    std::uint64_t line = 0;
    while (!message.empty() && std::isdigit(static_cast<unsigned char>(message.front())) != 0) {
        line = line * 10 + static_cast<std::uint64_t>(message.front() - '0');
        message.remove_prefix(1);
    }
    const auto lines = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n')) + 1;
    return line >= 1 && line <= lines && message.starts_with(": ") && message.size() > 5 &&
           std::none_of(message.begin(), message.end(),
                        [](char byte) { return byte >= 0 && byte < ' '; }) &&
           error.code() == Errc::invalid_argument;
}

void expect_rules(const Trace& trace) {
    std::uint64_t ideal_ns = 0;
    std::set<std::uint64_t> ids;
    for (const TraceTensor& each : trace.tensors()) {
        EXPECT_TRUE(each.size_bytes > 0 && ids.insert(each.id).second);
    }
    EXPECT_FALSE(trace.kernels().empty());
    for (KernelIndex i = 0; i < trace.kernels().size(); ++i) {
        ideal_ns += trace.kernels()[i].duration_ns;
        for (const TensorIndex tensor : trace.uses(i)) {
            ASSERT_LT(tensor, trace.tensors().size());
            EXPECT_LE(trace.tensors()[tensor].first_use, i);
            EXPECT_GE(trace.tensors()[tensor].last_use, i);
        }
    }
    EXPECT_EQ(trace.ideal_ns(), ideal_ns);
}

void expect_rules(const Machine& machine) {
    ASSERT_LT(machine.device, machine.tiers.size());
    std::set<std::pair<TierIndex, TierIndex>> links;
    for (const MachineLink& each : machine.links) {
        EXPECT_TRUE(each.from < machine.tiers.size() && each.to < machine.tiers.size());
        EXPECT_TRUE(each.from != each.to && links.emplace(each.from, each.to).second);
        const double speed = machine.bytes_per_second(each);
        EXPECT_TRUE(speed > 0 && std::isfinite(speed));
    }
}

TEST(FormatFuzz, traces) {
    Mutator mutator(1);
    int read = 0;
    for (int i = 0; i < kTexts && !::testing::Test::HasFailure(); ++i) {
        const std::string text = mutator.mutated(kTrace);
        SCOPED_TRACE(text);
        const Result<Trace> trace = parse_trace(text, "fuzz");
        if (!trace) {
            EXPECT_TRUE(names_its_line(trace.error(), text)) << trace.error().message();
            continue;
        }
        ++read;
        expect_rules(*trace);
        const std::string written = to_text(*trace);
        const Result<Trace> again = parse_trace(written, "again");
        ASSERT_TRUE(again) << again.error().message();
        EXPECT_EQ(to_text(*again), written);
    }
    EXPECT_GT(read, kTexts / 200) << "changes that leave nothing valid test little";
}

TEST(FormatFuzz, machines) {
    Mutator mutator(2);
    int read = 0;
    for (int i = 0; i < kTexts && !::testing::Test::HasFailure(); ++i) {
        const std::string text = mutator.mutated(kMachine);
        SCOPED_TRACE(text);
        const Result<Machine> machine = parse_machine(text, "fuzz");
        if (machine) {
            ++read;
            expect_rules(*machine);
        } else {
            EXPECT_TRUE(names_its_line(machine.error(), text)) << machine.error().message();
        }
    }
    EXPECT_GT(read, kTexts / 200) << "changes that leave nothing valid test little";
}

TEST(FormatFuzz, schedules) {
    const Result<Trace> trace = parse_trace(kTrace, "trace");
    const Result<Machine> machine = parse_machine(kMachine, "machine");
    ASSERT_TRUE(trace && machine);
    Mutator mutator(3);
    int read = 0;
    for (int i = 0; i < kTexts && !::testing::Test::HasFailure(); ++i) {
        const std::string text = mutator.mutated(kSchedule);
        SCOPED_TRACE(text);
        const Result<Schedule> schedule = parse_schedule(text, "fuzz", *trace, *machine);
        if (!schedule) {
            EXPECT_TRUE(names_its_line(schedule.error(), text)) << schedule.error().message();
            continue;
        }
        ++read;
        const std::string written = to_text(*schedule, *trace, *machine);
        const Result<Schedule> again = parse_schedule(written, "again", *trace, *machine);
        ASSERT_TRUE(again) << again.error().message();
        EXPECT_EQ(*again, *schedule);
    }
    EXPECT_GT(read, kTexts / 200) << "changes that leave nothing valid test little";
}

// Runs `read` with each of its allocations failing in turn.
template <class Read>
void expect_out_of_memory_is_told(Read&& read) {
    for (std::uint64_t fail_at = 1;; ++fail_at) {
        bool struck = false;
        const auto result = [&] {
            const AllocationFault fault(fail_at);
            auto made = read();
            struck = fault.struck();
            return made;
        }();
        if (!struck) {
            EXPECT_TRUE(result);
            EXPECT_GT(fail_at, 1U);
            return;
        }
        ASSERT_FALSE(result) << fail_at;
        ASSERT_EQ(result.error().code(), Errc::out_of_memory) << fail_at;
    }
}

TEST(FormatFuzz, memory_runs_out_at_any_moment) {
    const Result<Trace> trace = parse_trace(kTrace, "trace");
    const Result<Machine> machine = parse_machine(kMachine, "machine");
    ASSERT_TRUE(trace && machine);
    expect_out_of_memory_is_told([] { return parse_trace(kTrace, "fuzz"); });
    expect_out_of_memory_is_told([] { return parse_machine(kMachine, "fuzz"); });
    expect_out_of_memory_is_told(
        [&] { return parse_schedule(kSchedule, "fuzz", *trace, *machine); });
}

}  // namespace
}  // namespace frostline
