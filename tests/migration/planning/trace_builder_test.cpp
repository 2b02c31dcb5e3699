// Proves the builder's rule: after an error it is as it was before, even if memory ran out.
#include "migration/planning/trace_builder.h"

#include "tests/tiers/allocation_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace frostline {
namespace {

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

// Adds everything anew until it is there, however often memory runs out.
TEST(TraceBuilder, is_as_before_when_memory_ran_out) {
    const std::string long_name(100, 'n');  // does not fit into a string itself
    TraceBuilder builder;
    std::uint64_t failures = 0;
    const auto insist = [&](auto&& add) {
        for (std::uint64_t fail_at = 1;; ++fail_at) {
            const auto added = [&] {
                const AllocationFault fault(fail_at);
                return add();
            }();
            if (added) return;
            ASSERT_EQ(added.error().code(), Errc::out_of_memory);
            ++failures;
        }
    };
    for (std::uint64_t i = 0; i < 20; ++i) {
        const std::string_view name = i % 2 == 0 ? "a" : std::string_view(long_name);
        insist([&] { return builder.add_tensor(100 + i, 1, name); });
    }
    for (TensorIndex i = 0; i < 20; ++i) {
        const std::array<TensorIndex, 2> uses{i, 0};
        const std::string name = long_name + std::to_string(i);
        insist([&] { return builder.add_kernel(2, name, uses, {}); });
        const std::array<TensorIndex, 1> last{19};
        if (i < 19) insist([&] { return builder.add_recomputation(i, 1, last); });
    }
    EXPECT_GT(failures, 40U);
    const Result<Trace> trace = builder.finish();
    ASSERT_TRUE(trace);
    EXPECT_EQ(trace->tensors().size(), 20U);
    EXPECT_EQ(trace->kernels().size(), 20U);
    EXPECT_EQ(trace->ideal_ns(), 40U);
    EXPECT_EQ(trace->recomputations().size(), 19U);
    EXPECT_EQ(trace->reads(7).size(), 2U);
    EXPECT_EQ(trace->name(7), long_name + "7");
}

}  // namespace
}  // namespace frostline
