// Proves the builder's rule: after an error it is as it was before, even if memory ran out.
#include "migration/planning/trace_builder.h"

#include "tests/tiers/allocation_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace frostline {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

using Places = std::vector<TensorIndex>;

TEST(TraceBuilder, finds_tensors_by_the_ids_that_the_author_gave_them) {
    TraceBuilder builder;
    // 1 is first an index that is not its tensor's id, and then an id that is not its index.
    EXPECT_EQ(*builder.add_tensor(5, 1, "a"), 0U);
    EXPECT_EQ(*builder.add_tensor(0, 1, "a"), 1U);
    EXPECT_EQ(*builder.add_tensor(2, 1, "a"), 2U);
    EXPECT_EQ(*builder.add_tensor(1, 1, "a"), 3U);
    EXPECT_EQ(*builder.find(5), 0U);
    EXPECT_EQ(*builder.find(0), 1U);
    EXPECT_EQ(*builder.find(2), 2U);
    EXPECT_EQ(*builder.find(1), 3U);
    EXPECT_EQ(builder.find(3).error().code(), Errc::not_found);
    for (const std::uint64_t id : {0, 1, 2, 5}) EXPECT_FALSE(builder.add_tensor(id, 1, "a"));
}

TEST(TraceBuilder, is_as_before_after_an_error) {
    TraceBuilder builder;
    ASSERT_TRUE(builder.add_tensor(8, 100, "weight"));
    ASSERT_TRUE(builder.add_tensor(9, 100, "a"));
    ASSERT_TRUE(builder.add_kernel(5, "k", Places{0}, Places{1}));
    ASSERT_TRUE(builder.add_recomputation(1, 3, Places{0}));
    const auto refuses = [](const auto& result, const char* words) {
        ASSERT_FALSE(result);
        EXPECT_EQ(result.error().code(), Errc::invalid_argument);
        EXPECT_THAT(result.error().message(), HasSubstr(words));
    };
    refuses(builder.add_tensor(8, 1, "a"), "tensor 8 was there before");
    refuses(builder.add_tensor(1, 0, "a"), "the size is 0");
    refuses(builder.add_tensor(1, TraceBuilder::kMostBytes - 199, "a"), "add up to more than");
    refuses(builder.add_tensor(1, 1, ""), "the class is ''");
    refuses(builder.add_tensor(1, 1, "two words"), "the class is 'two words'");
    refuses(builder.add_kernel(0, "k", {}, {}), "the duration is 0");
    refuses(builder.add_kernel(TraceBuilder::kMostNs - 4, "k", {}, {}), "add up to more than");
    refuses(builder.add_kernel(1, "a\nb", {}, {}), "the name is 'a?b'");
    refuses(builder.add_kernel(1, "k", Places{0, 2}, {}), "no tensor at place 2");
    refuses(builder.add_kernel(1, "k", {}, Places{0, 2}), "no tensor at place 2");
    refuses(builder.add_recomputation(2, 1, {}), "no tensor at place 2");
    refuses(builder.add_recomputation(0, 1, Places{2}), "no tensor at place 2");
    refuses(builder.add_recomputation(0, 0, {}), "the duration is 0");
    refuses(builder.add_recomputation(1, 1, {}), "tensor 9 has a recomputation already");
    refuses(builder.add_recomputation(0, 1, Places{1}), "tensor 8 would be recomputed");
    // What is just within the limits is taken.
    ASSERT_TRUE(builder.add_tensor(1, TraceBuilder::kMostBytes - 200, "a"));
    ASSERT_TRUE(builder.add_kernel(TraceBuilder::kMostNs - 5, "k", Places{2}, {}));
    const Result<Trace> trace = builder.finish();
    ASSERT_TRUE(trace);
    EXPECT_EQ(to_text(*trace),
              "frostline-trace 1\ntensor 8 100 weight\ntensor 9 100 a\n"
              "tensor 1 9007199254740792 a\nkernel 0 5 k 8 9\n"
              "kernel 1 9007199254740987 k 1 -\nrecompute 9 3 8\n");
    EXPECT_EQ(trace->ideal_ns(), TraceBuilder::kMostNs);
}

TEST(TraceBuilder, is_empty_after_it_gave_a_trace) {
    TraceBuilder builder;
    ASSERT_TRUE(builder.add_tensor(3, TraceBuilder::kMostBytes, "a"));
    EXPECT_FALSE(builder.finish()) << "it has no kernels";
    ASSERT_TRUE(builder.add_kernel(1, "k", {}, Places{0})) << "and can still get them";
    ASSERT_TRUE(builder.finish());
    EXPECT_EQ(builder.find(3).error().code(), Errc::not_found);
    EXPECT_EQ(builder.finish().error().code(), Errc::invalid_argument);
    ASSERT_TRUE(builder.add_tensor(3, 1, "a"));
    ASSERT_TRUE(builder.add_kernel(1, "other", {}, Places{0}));
    EXPECT_EQ(to_text(*builder.finish()),
              "frostline-trace 1\ntensor 3 1 a\nkernel 0 1 other - 3\n");
}

// What the builder would give, with a kernel more, so that it gives something at any time.
std::string outcome(TraceBuilder builder) {
    EXPECT_TRUE(builder.add_kernel(1, "end", Places{0}, {}));
    const Result<Trace> trace = builder.finish();
    if (!trace) return trace.error().message();
    return to_text(*trace) + std::to_string(trace->kernels().back().first_use);
}

// Each call with each of its allocations failing, on a builder that has no room to spare; what
// failed succeeds when there is memory again.
TEST(TraceBuilder, is_as_before_when_memory_ran_out) {
    const std::string long_name(100, 'n');  // does not fit into a string itself
    TraceBuilder builder;
    std::uint64_t failures = 0;
    const auto insist = [&](const auto& add) {
        std::vector<std::string> outcomes;  // of those that succeeded late
        for (std::uint64_t fail_at = 1;; ++fail_at) {
            TraceBuilder tried = builder;  // with room for what it has
            const auto added = [&] {
                const AllocationFault fault(fail_at);
                return add(tried);
            }();
            if (!added) {
                ++failures;
                ASSERT_EQ(added.error().code(), Errc::out_of_memory);
                ASSERT_TRUE(add(tried));
                outcomes.push_back(outcome(tried));
                continue;
            }
            builder = std::move(tried);
            EXPECT_THAT(outcomes, Each(outcome(builder)));
            return;
        }
    };
    const auto add_tensor = [&](std::uint64_t id, std::string_view name) {
        insist([&](TraceBuilder& tried) { return tried.add_tensor(id, 1, name); });
    };
    add_tensor(100, "a");
    add_tensor(1, long_name);
    add_tensor(102, "a");
    const Places first{0, 1};
    const Places others{1, 2};
    const std::string other_name = long_name + "2";
    insist([&](TraceBuilder& tried) { return tried.add_kernel(2, "a", first, {}); });
    insist([&](TraceBuilder& tried) { return tried.add_kernel(2, other_name, {}, {}); });
    insist([&](TraceBuilder& tried) { return tried.add_recomputation(0, 1, others); });
    insist([&](TraceBuilder& tried) {
        return tried.add_recomputation(1, 1, std::span(others).last(1));
    });
    EXPECT_GT(failures, 10U);
    const Result<Trace> trace = builder.finish();
    ASSERT_TRUE(trace);
    EXPECT_EQ(to_text(*trace), "frostline-trace 1\ntensor 100 1 a\ntensor 1 1 " + long_name +
                                   "\ntensor 102 1 a\nkernel 0 2 a 100,1 -\nkernel 1 2 " +
                                   long_name + "2 - -\nrecompute 100 1 1,102\n" +
                                   "recompute 1 1 102\n");
}

}  // namespace
}  // namespace frostline
