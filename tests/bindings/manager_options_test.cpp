// Proves that options given as text are set as meant, or refused with their name and a way out.
#include "bindings/manager_options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace frostline {
namespace {

TEST(ManagerOptions, every_option_is_set_from_text) {
    ManagerOptions options;
    const std::pair<const char*, const char*> given[] = {
        {"dram", "256MiB"},       {"pmem", "/pmem/file"},
        {"pmem_bytes", "2GiB"},   {"swap", "/swap"},
        {"swap_bytes", "0.5GiB"}, {"verify", "yes"},
        {"calibrate", "no"},      {"swap_devices", "yes"},
        {"numa", "bind:0,2"},     {"far_node", "3"},
        {"far_bytes", "4GiB"},    {"pin", "on"},
        {"device", "1GiB"},       {"gpu", "2"}};
    for (const auto& [name, value] : given) {
        const auto set = set_option(options, name, value);
        EXPECT_TRUE(set.has_value()) << set.error().message();
    }
    EXPECT_EQ(options.dram_bytes, std::uint64_t{256} << 20);
    EXPECT_EQ(options.pmem_path, "/pmem/file");
    EXPECT_EQ(options.pmem_bytes, std::uint64_t{2} << 30);
    EXPECT_EQ(options.swap_places, std::vector<std::string>{"/swap"});
    EXPECT_TRUE(options.swap_devices);
    EXPECT_EQ(options.numa.mode, NumaPlacement::Mode::bind);
    EXPECT_EQ(options.numa.nodes, (std::vector<int>{0, 2}));
    EXPECT_EQ(options.far_node, 3);
    EXPECT_EQ(options.far_bytes, std::uint64_t{4} << 30);
    EXPECT_TRUE(options.pin);
    EXPECT_EQ(options.device_bytes, std::uint64_t{1} << 30);
    EXPECT_EQ(options.gpu, 2);
    EXPECT_EQ(options.swap_bytes, std::uint64_t{1} << 29);
    EXPECT_TRUE(options.verify);
    EXPECT_FALSE(options.calibrate);
}

TEST(ManagerOptions, swap_may_have_several_places) {
    ManagerOptions options;
    ASSERT_TRUE(set_option(options, "swap", "/a:/b/c:/d").has_value());
    EXPECT_EQ(options.swap_places, (std::vector<std::string>{"/a", "/b/c", "/d"}));
    for (const char* const wrong : {"", ":", "/a:", ":/a", "/a::/b"}) {
        EXPECT_EQ(set_option(options, "swap", wrong).error().code(), Errc::invalid_argument);
    }
}

TEST(ManagerOptions, nodes_are_said_as_numbers) {
    ManagerOptions options;
    ASSERT_TRUE(set_option(options, "numa", "interleave:1").has_value());
    EXPECT_EQ(options.numa.mode, NumaPlacement::Mode::interleave);
    ASSERT_TRUE(set_option(options, "numa", "none").has_value());
    EXPECT_EQ(options.numa.mode, NumaPlacement::Mode::none);
    for (const char* const wrong : {"", "bind", "bind:", "bind:x", "bind:0,", "bind:-1", "near:0",
                                    "bind:0 ", "bind:99999999999"}) {
        EXPECT_EQ(set_option(options, "numa", wrong).error().code(), Errc::invalid_argument)
            << wrong;
    }
    for (const char* const wrong : {"", "x", "-1", "1.5", "1 "}) {
        EXPECT_EQ(set_option(options, "far_node", wrong).error().code(), Errc::invalid_argument);
    }
}

TEST(ManagerOptions, flags_are_said_in_several_words) {
    ManagerOptions options;
    for (const char* const yes : {"1", "true", "yes", "on"}) {
        options.verify = false;
        EXPECT_TRUE(set_option(options, "verify", yes).has_value());
        EXPECT_TRUE(options.verify) << yes;
    }
    for (const char* const no : {"0", "false", "no", "off"}) {
        options.verify = true;
        EXPECT_TRUE(set_option(options, "verify", no).has_value());
        EXPECT_FALSE(options.verify) << no;
    }
    for (const char* const other : {"", "2", "maybe", "tru"}) {
        EXPECT_EQ(set_option(options, "verify", other).error().code(), Errc::invalid_argument);
    }
}

TEST(ManagerOptions, an_unknown_name_is_answered_with_the_known_ones) {
    ManagerOptions options;
    for (const char* const name : {"", "Dram", "dram ", "cache", "pmem-bytes"}) {
        const auto set = set_option(options, name, "1MiB");
        ASSERT_FALSE(set.has_value()) << name;
        EXPECT_EQ(set.error().code(), Errc::invalid_argument);
        const std::string message = set.error().message();
        EXPECT_NE(message.find("'" + std::string(name) + "'"), std::string::npos) << message;
        for (const char* const known :
             {"dram", "pmem", "pmem_bytes", "swap", "swap_bytes", "swap_devices", "numa",
              "far_node", "far_bytes", "pin", "verify", "calibrate"}) {
            EXPECT_NE(message.find(known), std::string::npos) << message;
        }
    }
}

TEST(ManagerOptions, a_bad_value_is_answered_with_its_option_and_changes_nothing) {
    ManagerOptions options;
    ASSERT_TRUE(set_option(options, "dram", "1MiB").has_value());
    ASSERT_TRUE(set_option(options, "pmem", "/kept").has_value());
    const std::pair<const char*, std::string> bad[] = {
        {"dram", "12Q"},        {"dram", ""}, {"pmem_bytes", "-1"},
        {"swap_bytes", "much"}, {"pmem", ""}, {"swap", std::string("a\0b", 3)}};
    for (const auto& [name, value] : bad) {
        const auto set = set_option(options, name, value);
        ASSERT_FALSE(set.has_value()) << name << "=" << value;
        EXPECT_EQ(set.error().code(), Errc::invalid_argument);
        EXPECT_EQ(std::string(set.error().message()).find(name), 0U) << set.error().message();
    }
    EXPECT_EQ(options.dram_bytes, std::uint64_t{1} << 20);
    EXPECT_EQ(options.pmem_path, "/kept");
    EXPECT_EQ(options.swap_bytes, 0U);
}

}  // namespace
}  // namespace frostline
