// Proves that a recorded step is written in the trace format to the letter, so that any planner can
// read it: a small parser of this test's own checks it, and the referee's, where it lies nearby.
#include "migration/trace_recorder.h"

#include "tests/tiers/scratch_folder.h"
#include "tests/tiers/seed.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

namespace frostline {
namespace {

struct Parsed {
    std::map<int, std::uint64_t> sizes;
    struct Kernel {
        std::uint64_t duration_ns;
        std::string name, reads, writes;
    };
    std::vector<Kernel> kernels;
};

// Nothing if the text is no trace. Knows the format from its description alone.
std::optional<Parsed> parse(const std::string& text) {
    std::istringstream in(text);
    std::string line;
    if (!std::getline(in, line) || line != "frostline-trace 1") return std::nullopt;
    Parsed parsed;
    while (std::getline(in, line)) {
        std::istringstream words(line);
        std::string kind;
        std::string rest;
        words >> kind;
        if (kind == "tensor") {
            int id = -1;
            std::uint64_t bytes = 0;
            std::string tensor_class;
            if (!(words >> id >> bytes >> tensor_class) || (words >> rest)) return std::nullopt;
            if (bytes == 0 || !parsed.sizes.emplace(id, bytes).second) return std::nullopt;
        } else if (kind == "kernel") {
            std::size_t index = 0;
            Parsed::Kernel kernel;
            if (!(words >> index >> kernel.duration_ns >> kernel.name >> kernel.reads >>
                  kernel.writes) ||
                (words >> rest)) {
                return std::nullopt;
            }
            if (index != parsed.kernels.size()) return std::nullopt;
            for (const std::string& ids : {kernel.reads, kernel.writes}) {
                if (ids != "-" && !parsed.sizes.contains(std::stoi(ids))) return std::nullopt;
            }
            parsed.kernels.push_back(kernel);
        } else {
            return std::nullopt;
        }
    }
    return parsed;
}

constexpr TensorId kA{17, 3};
constexpr TensorId kB{2, 9};

TEST(TraceRecorder, writes_a_step_to_the_letter) {
    TraceRecorder recorder;
    recorder.stored(kA, 100, 1000);
    recorder.stored(kB, 200, 1500);
    recorder.used(kB, 200, 1500);  // at the same instant: a kernel lasts a nanosecond at least
    recorder.used(kA, 100, 4000);
    recorder.end_step(4007);
    EXPECT_EQ(recorder.text(),
              "frostline-trace 1\n"
              "tensor 0 100 activation\n"
              "tensor 1 200 activation\n"
              "kernel 0 500 store - 0\n"
              "kernel 1 1 store - 1\n"
              "kernel 2 2500 use 1 -\n"
              "kernel 3 7 use 0 -\n");
}

TEST(TraceRecorder, an_empty_trace_is_a_trace) {
    TraceRecorder recorder;
    EXPECT_EQ(recorder.text(), "frostline-trace 1\n");
    recorder.end_step(5);
    EXPECT_EQ(recorder.text(), "frostline-trace 1\n");
}

TEST(TraceRecorder, gives_the_last_complete_step) {
    TraceRecorder recorder;
    recorder.stored(kA, 1, 10);
    EXPECT_NE(recorder.text().find("tensor 0 1 "), std::string::npos) << "none is complete yet";
    recorder.end_step(20);
    recorder.stored(kB, 2, 30);
    EXPECT_NE(recorder.text().find("tensor 0 1 "), std::string::npos) << "the next is in progress";
    EXPECT_EQ(recorder.text().find("tensor 0 2 "), std::string::npos);
    recorder.end_step(40);
    EXPECT_EQ(recorder.text(), "frostline-trace 1\ntensor 0 2 activation\nkernel 0 10 store - 0\n");
    recorder.end_step(50);  // nothing happened in it
    EXPECT_NE(recorder.text().find("tensor 0 2 "), std::string::npos);
}

TEST(TraceRecorder, tells_generations_of_a_slot_apart) {
    TraceRecorder recorder;
    recorder.stored({5, 1}, 10, 1);
    recorder.stored({5, 2}, 20, 2);
    recorder.end_step(3);
    const auto parsed = parse(recorder.text());
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(parsed->sizes, (std::map<int, std::uint64_t>{{0, 10}, {1, 20}}));
}

TEST(TraceRecorder, a_step_without_end_is_left_out) {
    TraceRecorder recorder;
    recorder.stored({1, 1}, 10, 1);
    recorder.end_step(2);
    const std::string before = recorder.text();
    for (std::size_t i = 0; i <= TraceRecorder::kMaxEvents; ++i) recorder.used({2, 1}, 20, i);
    recorder.end_step(3);
    EXPECT_EQ(recorder.text(), before);
    recorder.stored({3, 1}, 30, 4);  // the next step is recorded again
    recorder.end_step(5);
    EXPECT_NE(recorder.text(), before);
}

TEST(TraceRecorder, a_clock_that_stands_or_goes_back_harms_nothing) {
    TraceRecorder recorder;
    recorder.stored(kA, 10, 100);
    recorder.used(kA, 10, 90);
    recorder.end_step(80);
    const auto parsed = parse(recorder.text());
    ASSERT_TRUE(parsed.has_value());
    for (const Parsed::Kernel& each : parsed->kernels) EXPECT_EQ(each.duration_ns, 1U);
}

// A random step, and what it must come to.
std::string random_step(TraceRecorder& recorder, std::size_t events) {
    std::mt19937_64 random = random_stream(50);
    std::map<TensorId, int> numbers;
    std::map<int, std::uint64_t> sizes;
    std::vector<Parsed::Kernel> kernels;
    std::uint64_t now = 0;
    for (std::size_t i = 0; i < events; ++i) {
        const TensorId id{static_cast<std::uint32_t>(between(random, 0, 40)), 1};
        const auto [entry, is_new] = numbers.try_emplace(id, static_cast<int>(numbers.size()));
        const std::uint64_t bytes = (id.slot + 1) * 1000;
        sizes.emplace(entry->second, bytes);
        const std::string number = std::to_string(entry->second);
        if (is_new) {
            recorder.stored(id, bytes, now);
            kernels.push_back({0, "store", "-", number});
        } else {
            recorder.used(id, bytes, now);
            kernels.push_back({0, "use", number, "-"});
        }
        kernels.back().duration_ns = between(random, 1, 1000);
        now += kernels.back().duration_ns;
    }
    recorder.end_step(now);
    std::string text = recorder.text();
    const auto parsed = parse(text);
    EXPECT_TRUE(parsed.has_value()) << text;
    if (!parsed) return text;
    EXPECT_EQ(parsed->sizes, sizes);
    EXPECT_EQ(parsed->kernels.size(), kernels.size());
    for (std::size_t i = 0; i < std::min(kernels.size(), parsed->kernels.size()); ++i) {
        EXPECT_EQ(parsed->kernels[i].duration_ns, kernels[i].duration_ns);
        EXPECT_EQ(parsed->kernels[i].name, kernels[i].name);
        EXPECT_EQ(parsed->kernels[i].reads, kernels[i].reads);
        EXPECT_EQ(parsed->kernels[i].writes, kernels[i].writes);
    }
    return text;
}

TEST(TraceRecorder, this_tests_own_parser_reads_what_was_recorded) {
    TraceRecorder recorder;
    random_step(recorder, 500);
}

TEST(TraceRecorder, the_referee_reads_what_was_recorded) {
    const std::filesystem::path referee =
        std::filesystem::path(__FILE__).parent_path() / "../../../shared/referee/referee.py";
    TraceRecorder recorder;
    const std::string text = random_step(recorder, 500);
    if (!std::filesystem::exists(referee) || std::system("python3 -c pass 2>/dev/null") != 0) {
        std::puts("no referee (or no python3) beside the source tree: only this test's own parser");
        return;
    }
    const ScratchFolder folder;
    std::ofstream(folder.file("trace")) << text;
    std::ofstream(folder.file("read.py"))
        << "import sys\nsys.dont_write_bytecode = True\nsys.path.insert(0, sys.argv[1])\n"
           "import referee\ntensors, kernels = referee.read_trace(sys.argv[2])\n"
           "assert len(kernels) == 500, len(kernels)\n"
           "assert all(size > 0 and kind == 'activation' for size, kind in tensors.values())\n"
           "assert all(set(reads + writes) <= set(tensors) for _, _, reads, writes in kernels)\n";
    const std::string command = "python3 '" + folder.file("read.py") + "' '" +
                                referee.parent_path().string() + "' '" + folder.file("trace") + "'";
    EXPECT_EQ(std::system(command.c_str()), 0) << "the referee refuses the trace";
}

}  // namespace
}  // namespace frostline
