// Proves the C face: plain C can use all of it, NULL and nonsense are refused with a message, and a
// program built against another version of the header gets what both know.
#include "frostline/frostline.h"

#include "tests/tiers/scratch_folder.h"
#include "tiers/error.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

extern "C" int use_every_function(const char* folder);

namespace frostline {
namespace {

class CInterface : public testing::Test {
   protected:
    void SetUp() override {
        const std::string swap = "swap=" + folder_.path();
        const std::array<const char*, 4> options{"dram=1MiB", swap.c_str(), "swap_bytes=16MiB",
                                                 nullptr};
        ASSERT_EQ(frostline_open(options.data(), &context_), FROSTLINE_OK)
            << frostline_last_error();
    }
    void TearDown() override {
        EXPECT_EQ(frostline_close(context_), FROSTLINE_OK) << frostline_last_error();
        EXPECT_EQ(folder_.entries(), 0U);
    }
    frostline_id put(std::size_t size_bytes) {
        const std::vector<char> data(size_bytes, 'd');
        frostline_id id = 0;
        EXPECT_EQ(frostline_put(context_, data.data(), data.size(), &id), FROSTLINE_OK);
        return id;
    }
    // A refusal says what is wrong.
    static void refused(frostline_status status, frostline_status expected, const char* said) {
        EXPECT_EQ(status, expected);
        EXPECT_NE(std::strstr(frostline_last_error(), said), nullptr)
            << "'" << frostline_last_error() << "' does not say '" << said << "'";
    }

    ScratchFolder folder_;
    frostline_context* context_ = nullptr;
};

TEST(CStatus, has_the_values_of_the_library_s_own_codes) {
    const std::pair<frostline_status, Errc> same[] = {
        {FROSTLINE_INVALID_ARGUMENT, Errc::invalid_argument},
        {FROSTLINE_OUT_OF_MEMORY, Errc::out_of_memory},
        {FROSTLINE_NO_SPACE, Errc::no_space},
        {FROSTLINE_CLOSED, Errc::closed},
        {FROSTLINE_NOT_FOUND, Errc::not_found},
        {FROSTLINE_BUSY, Errc::busy},
        {FROSTLINE_IO, Errc::io},
        {FROSTLINE_PERMISSION, Errc::permission},
        {FROSTLINE_UNSUPPORTED, Errc::unsupported},
        {FROSTLINE_CORRUPT, Errc::corrupt},
        {FROSTLINE_CANCELLED, Errc::cancelled}};
    for (const auto& [status, code] : same) {
        EXPECT_EQ(static_cast<int>(status), static_cast<int>(code));
    }
}

TEST(COpening, refuses_what_it_does_not_understand) {
    struct Case {
        std::vector<const char*> options;
        frostline_status status;
        const char* said;
    };
    const Case cases[] = {
        {{nullptr}, FROSTLINE_INVALID_ARGUMENT, "dram"},
        {{"dram=12Q", nullptr}, FROSTLINE_INVALID_ARGUMENT, "'12Q'"},
        {{"dram=", nullptr}, FROSTLINE_INVALID_ARGUMENT, "dram"},
        {{"dram", nullptr}, FROSTLINE_INVALID_ARGUMENT, "name=value"},
        {{"dram=1MiB", "colour=red", nullptr}, FROSTLINE_INVALID_ARGUMENT, "'colour'"},
        {{"dram=1MiB", "verify=maybe", nullptr}, FROSTLINE_INVALID_ARGUMENT, "'maybe'"},
        {{"dram=1MiB", "swap=/no/such/folder", nullptr}, FROSTLINE_NOT_FOUND, "/no/such/folder"},
    };
    for (const Case& each : cases) {
        auto* context = reinterpret_cast<frostline_context*>(1);
        EXPECT_EQ(frostline_open(each.options.data(), &context), each.status);
        EXPECT_EQ(context, nullptr) << "a failed call left something to close";
        EXPECT_NE(std::strstr(frostline_last_error(), each.said), nullptr)
            << frostline_last_error();
    }
    frostline_context* context = nullptr;
    EXPECT_EQ(frostline_open(nullptr, &context), FROSTLINE_INVALID_ARGUMENT);
    EXPECT_EQ(frostline_open(cases[0].options.data(), nullptr), FROSTLINE_INVALID_ARGUMENT);
}

TEST_F(CInterface, plain_c_uses_every_function) {
    const ScratchFolder folder;
    EXPECT_EQ(use_every_function(folder.path().c_str()), 0)
        << "at that line of c_interface.c: " << frostline_last_error();
    EXPECT_EQ(folder.entries(), 0U);
}

TEST_F(CInterface, null_is_refused_everywhere) {
    const frostline_id id = put(100);
    std::array<char, 100> data{};
    std::size_t size = 0;
    frostline_id other = 0;
    frostline_pinned* pinned = nullptr;
    frostline_stats stats{};
    frostline_tier_stats tier{};
    const auto release = [](void*, void*, std::size_t) {};
    const frostline_status all[] = {
        frostline_put(nullptr, data.data(), 100, &other),
        frostline_put(context_, nullptr, 100, &other),
        frostline_put(context_, data.data(), 100, nullptr),
        frostline_put(context_, data.data(), 0, &other),
        frostline_adopt(nullptr, data.data(), 100, release, nullptr, 0, &other),
        frostline_adopt(context_, nullptr, 100, release, nullptr, 0, &other),
        frostline_adopt(context_, data.data(), 100, nullptr, nullptr, 0, &other),
        frostline_adopt(context_, data.data(), 100, release, nullptr, 0, nullptr),
        frostline_adopt(context_, data.data(), 0, release, nullptr, 0, &other),
        frostline_settle(nullptr, id),
        frostline_prefetch(nullptr, id),
        frostline_get(nullptr, id, data.data(), 100),
        frostline_get(context_, id, nullptr, 100),
        frostline_get(context_, id, data.data(), 99),
        frostline_size(nullptr, id, &size),
        frostline_size(context_, id, nullptr),
        frostline_pin(nullptr, id, FROSTLINE_READ, &pinned),
        frostline_pin(context_, id, FROSTLINE_READ, nullptr),
        frostline_drop(nullptr, id),
        frostline_step(nullptr),
        frostline_get_stats(nullptr, &stats),
        frostline_get_stats(context_, nullptr),
        frostline_get_stats(context_, &stats),  // struct_size is not set
        frostline_get_tier_stats(nullptr, 0, &tier),
        frostline_get_tier_stats(context_, 0, nullptr),
        frostline_get_tier_stats(context_, 0, &tier),
        frostline_write_trace(nullptr, "trace"),
        frostline_write_trace(context_, nullptr),
    };
    for (std::size_t i = 0; i < std::size(all); ++i) {
        EXPECT_EQ(all[i], FROSTLINE_INVALID_ARGUMENT) << "call " << i;
    }
    EXPECT_EQ(frostline_close(nullptr), FROSTLINE_OK);
    frostline_unpin(nullptr);
    size = 1;
    EXPECT_EQ(frostline_pinned_data(nullptr, &size), nullptr);
    EXPECT_EQ(size, 0U);
    stats.struct_size = sizeof stats;
    EXPECT_EQ(frostline_get_stats(context_, &stats), FROSTLINE_OK);
    EXPECT_EQ(stats.stored, 1U) << "a refused call stored something";
}

TEST_F(CInterface, stale_and_foreign_ids_are_recognised) {
    const frostline_id old = put(10);
    ASSERT_EQ(frostline_drop(context_, old), FROSTLINE_OK);
    const frostline_id young = put(10);
    EXPECT_NE(old, young);
    for (const frostline_id id : {old, frostline_id{0}, frostline_id{1}, ~frostline_id{0},
                                  young + (frostline_id{1} << 32)}) {
        std::array<char, 10> data{};
        std::size_t size = 0;
        auto* pinned = reinterpret_cast<frostline_pinned*>(1);
        refused(frostline_get(context_, id, data.data(), 10), FROSTLINE_NOT_FOUND, "no tensor");
        EXPECT_EQ(frostline_size(context_, id, &size), FROSTLINE_NOT_FOUND);
        EXPECT_EQ(frostline_pin(context_, id, FROSTLINE_READ, &pinned), FROSTLINE_NOT_FOUND);
        EXPECT_EQ(pinned, nullptr);
        EXPECT_EQ(frostline_prefetch(context_, id), FROSTLINE_NOT_FOUND);
        EXPECT_EQ(frostline_settle(context_, id), FROSTLINE_NOT_FOUND);
        EXPECT_EQ(frostline_drop(context_, id), FROSTLINE_NOT_FOUND);
    }
}

TEST_F(CInterface, figures_of_an_older_and_a_newer_program) {
    put(1234);
    // An older header knew less: nothing is written past what it knew.
    constexpr std::size_t kOlder = offsetof(frostline_stats, dropped);
    frostline_stats stats;
    std::memset(&stats, 0xab, sizeof stats);
    stats.struct_size = kOlder;
    ASSERT_EQ(frostline_get_stats(context_, &stats), FROSTLINE_OK);
    EXPECT_EQ(stats.struct_size, kOlder);
    EXPECT_EQ(stats.stored, 1U);
    EXPECT_EQ(stats.stored_bytes, 1234U);
    EXPECT_EQ(stats.dropped, 0xababababababababU) << "written past the end";
    EXPECT_EQ(stats.tiers, 0xababababababababU) << "written past the end";
    // A newer one knows more: what this library does not know stays as it was.
    struct Newer {
        frostline_stats known;
        std::uint64_t unknown = 42;
    } newer{};
    newer.known.struct_size = sizeof newer;
    ASSERT_EQ(frostline_get_stats(context_, &newer.known), FROSTLINE_OK);
    EXPECT_EQ(newer.known.struct_size, sizeof newer);
    EXPECT_EQ(newer.known.tiers, 2U);
    EXPECT_EQ(newer.unknown, 42U);
    frostline_tier_stats tier;
    std::memset(&tier, 0xab, sizeof tier);
    tier.struct_size = offsetof(frostline_tier_stats, budget_bytes);
    ASSERT_EQ(frostline_get_tier_stats(context_, 0, &tier), FROSTLINE_OK);
    EXPECT_STREQ(tier.name, "dram");
    EXPECT_EQ(tier.budget_bytes, 0xababababababababU) << "written past the end";
    for (const std::size_t nonsense : {std::size_t{0}, sizeof(std::size_t) - 1}) {
        stats.struct_size = nonsense;
        refused(frostline_get_stats(context_, &stats), FROSTLINE_INVALID_ARGUMENT, "struct_size");
    }
}

TEST_F(CInterface, every_thread_has_a_message_of_its_own) {
    refused(frostline_drop(context_, 77), FROSTLINE_NOT_FOUND, "77");
    std::thread([this] {
        EXPECT_STREQ(frostline_last_error(), "") << "nothing failed here yet";
        refused(frostline_drop(context_, 88), FROSTLINE_NOT_FOUND, "88");
    }).join();
    EXPECT_NE(std::strstr(frostline_last_error(), "77"), nullptr) << frostline_last_error();
}

TEST_F(CInterface, adopted_buffers_come_back_exactly_once) {
    std::array<int, 12> released{};
    std::vector<std::vector<char>> buffers(released.size(), std::vector<char>(300'000, 'b'));
    const auto release = [](void* user, void*, std::size_t size_bytes) {
        if (size_bytes == 300'000) ++*static_cast<int*>(user);
    };
    std::vector<frostline_id> ids(released.size());
    for (std::size_t i = 0; i < released.size(); ++i) {
        ASSERT_EQ(frostline_adopt(context_, buffers[i].data(), 300'000, release, &released[i],
                                  i % 3 == 0, &ids[i]),
                  FROSTLINE_OK)
            << frostline_last_error();
        if (i % 3 == 0) {
            EXPECT_EQ(frostline_settle(context_, ids[i]), FROSTLINE_OK);
        }
    }
    for (std::size_t i = 0; i < released.size(); i += 2) {
        EXPECT_EQ(frostline_drop(context_, ids[i]), FROSTLINE_OK);
    }
    std::vector<char> back(300'000);
    for (std::size_t i = 1; i < released.size(); i += 2) {
        EXPECT_EQ(frostline_get(context_, ids[i], back.data(), back.size()), FROSTLINE_OK);
        EXPECT_EQ(back[299'999], 'b');
    }
    EXPECT_EQ(frostline_close(std::exchange(context_, nullptr)), FROSTLINE_OK);
    for (const int each : released) EXPECT_EQ(each, 1);
}

TEST_F(CInterface, a_refused_adoption_leaves_the_buffer_alone) {
    std::vector<char> too_large(20 << 20, 'b');
    int released = 0;
    const auto release = [](void* user, void*, std::size_t) { ++*static_cast<int*>(user); };
    frostline_id id = 5;
    EXPECT_EQ(
        frostline_adopt(context_, too_large.data(), too_large.size(), release, &released, 0, &id),
        FROSTLINE_NO_SPACE);
    EXPECT_EQ(released, 0);
    EXPECT_EQ(id, 5U);
}

TEST_F(CInterface, closing_is_refused_while_a_tensor_is_pinned) {
    const frostline_id id = put(5000);
    frostline_pinned* pinned = nullptr;
    ASSERT_EQ(frostline_pin(context_, id, FROSTLINE_READ, &pinned), FROSTLINE_OK);
    refused(frostline_close(context_), FROSTLINE_BUSY, "unpin");
    EXPECT_NE(put(5000), 0U) << "it is still open";
    EXPECT_EQ(frostline_drop(context_, id), FROSTLINE_OK);
    refused(frostline_close(context_), FROSTLINE_BUSY, "unpin");
    EXPECT_EQ(static_cast<const char*>(frostline_pinned_data(pinned, nullptr))[4999], 'd');
    frostline_unpin(pinned);
}

TEST_F(CInterface, a_trace_cannot_be_written_where_there_is_no_folder) {
    put(10);
    refused(frostline_write_trace(context_, folder_.file("missing/trace").c_str()),
            FROSTLINE_NOT_FOUND, "missing/trace");
    const std::string path = folder_.file("trace");
    for (int i = 0; i < 2; ++i) {  // the second one replaces the first
        ASSERT_EQ(frostline_write_trace(context_, path.c_str()), FROSTLINE_OK);
        EXPECT_EQ(std::filesystem::status(path).permissions(),
                  std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    }
    EXPECT_EQ(folder_.entries(), 1U) << "a temporary file stays behind";
    std::filesystem::remove(path);
}

}  // namespace
}  // namespace frostline
