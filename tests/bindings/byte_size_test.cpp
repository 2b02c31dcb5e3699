// Proves that a size is understood whole or refused, never guessed at.
#include "bindings/byte_size.h"

#include <gtest/gtest.h>

#include <string>

namespace frostline {
namespace {

constexpr std::uint64_t kKi = 1024;

TEST(ByteSize, understands_what_people_write) {
    const std::pair<const char*, std::uint64_t> cases[] = {
        {"0", 0},
        {"1", 1},
        {"4096", 4096},
        {"4096B", 4096},
        {"0GiB", 0},
        {"1K", kKi},
        {"1KiB", kKi},
        {"1kb", 1000},
        {"256MiB", 256 * kKi * kKi},
        {"256mib", 256 * kKi * kKi},
        {"256 MiB", 256 * kKi * kKi},
        {"3MB", 3'000'000},
        {"0.5GiB", kKi * kKi * kKi / 2},
        {"1.5G", 3 * kKi * kKi * kKi / 2},
        {"2GB", 2'000'000'000},
        {"1TiB", kKi * kKi * kKi * kKi},
        {"1tb", 1'000'000'000'000},
        {"999999TiB", 999999 * kKi * kKi * kKi * kKi},
        {"007", 7},
    };
    for (const auto& [text, bytes] : cases) {
        const auto parsed = parse_byte_size(text);
        ASSERT_TRUE(parsed.has_value()) << text << ": " << parsed.error().message();
        EXPECT_EQ(*parsed, bytes) << text;
    }
}

TEST(ByteSize, refuses_the_rest_and_names_it) {
    for (const char* const text : {"",
                                   " ",
                                   "12Q",
                                   "-1",
                                   "-1GiB",
                                   "+1",
                                   "1e400",
                                   "1e3",
                                   "MiB",
                                   "B",
                                   "1.5",
                                   "1.5B",
                                   "0x10",
                                   "1,5GiB",
                                   "1 2MiB",
                                   "1MiB1",
                                   "1MiBs",
                                   "1Mi",
                                   "1iB",
                                   "nan",
                                   "inf",
                                   "infinity",
                                   "1..5GiB",
                                   "18446744073709551615",
                                   "18446744073709551616",
                                   "9223372036854775808",
                                   "9999999TiB",
                                   "99999999999999999999999999999999GiB",
                                   "１MiB",
                                   "1МиБ",
                                   "1µB",
                                   "１２",
                                   "1\u00a0MiB",
                                   "∞",
                                   "1MiB\n",
                                   "\t1MiB"}) {
        const auto parsed = parse_byte_size(text);
        ASSERT_FALSE(parsed.has_value()) << "'" << text << "' became " << *parsed;
        EXPECT_EQ(parsed.error().code(), Errc::invalid_argument);
        const std::string message = parsed.error().message();
        EXPECT_NE(message.find("'" + std::string(text) + "'"), std::string::npos) << message;
        EXPECT_NE(message.find("MiB"), std::string::npos) << "no example is given: " << message;
    }
    EXPECT_FALSE(parse_byte_size(std::string_view("1\0MiB", 5)).has_value());
    EXPECT_FALSE(parse_byte_size(std::string_view("1MiB\0", 5)).has_value());
    EXPECT_FALSE(parse_byte_size(std::string(100'000, '9')).has_value());
}

TEST(ByteSize, whole_numbers_are_exact) {
    for (const std::uint64_t bytes : {(std::uint64_t{1} << 53) - 1, (std::uint64_t{1} << 53) + 1,
                                      (std::uint64_t{1} << 63) - 1}) {
        const auto parsed = parse_byte_size(std::to_string(bytes));
        ASSERT_TRUE(parsed.has_value()) << bytes;
        EXPECT_EQ(*parsed, bytes) << "a budget was misread";
    }
}

TEST(ByteSize, formats_in_the_largest_fitting_unit) {
    EXPECT_EQ(format_byte_size(0), "0 B");
    EXPECT_EQ(format_byte_size(1023), "1023 B");
    EXPECT_EQ(format_byte_size(1024), "1.0 KiB");
    EXPECT_EQ(format_byte_size(1536 * kKi), "1.5 MiB");
    EXPECT_EQ(format_byte_size(kKi * kKi * kKi), "1.0 GiB");
    EXPECT_EQ(format_byte_size(2048 * kKi * kKi * kKi * kKi), "2048.0 TiB");
}

}  // namespace
}  // namespace frostline
