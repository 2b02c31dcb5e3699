// Proves that an Error says what it must in the room it has, without allocating, that errno values
// become codes a caller can act on, and that a Result cannot be ignored.
#include "tiers/error.h"
#include "tests/tiers/allocation_faults.h"
#include "tiers/result.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace frostline {
namespace {

static_assert(std::is_trivially_copyable_v<Error>);

TEST(Error, CarriesCodeNativeCodeAndText) {
    const Error plain(Errc::busy, 0, "tensor {} of {} bytes", 7, 4096);
    EXPECT_EQ(plain.code(), Errc::busy);
    EXPECT_EQ(plain.native(), 0);
    EXPECT_STREQ(plain.message(), "tensor 7 of 4096 bytes");
    const Error native(Errc::io, EIO, "reading '{}'", "a/b");
    EXPECT_EQ(native.native(), EIO);
    EXPECT_STREQ(native.message(), "reading 'a/b': Input/output error");
}

TEST(Error, ALongTextIsCutAndEnds) {
    for (const std::size_t length : {382U, 383U, 384U, 385U, 5000U}) {
        const std::string text(length, 'x');
        const Error error(Errc::io, 0, "{}", text);
        EXPECT_EQ(std::strlen(error.message()),
                  std::min<std::size_t>(length, Error::kMaxMessage - 1));
        EXPECT_EQ(text.compare(0, std::strlen(error.message()), error.message()), 0);
    }
}

TEST(Error, TheSystemsWordsSurviveALongPath) {
    for (std::size_t length = 300; length < 600; ++length) {
        const Error error = system_error(ENOSPC, "file '{}'", std::string(length, 'p'));
        const std::string message = error.message();
        ASSERT_LT(message.size(), Error::kMaxMessage);
        const std::string words = ": No space left on device";
        ASSERT_GE(message.size(), words.size());
        ASSERT_EQ(message.substr(message.size() - words.size()), words) << length;
    }
}

TEST(Error, BuildingCopyingAndReadingOneAllocatesNothing) {
    const std::string path(200, 'p');
    const AllocationFault allocations(1, true);
    const Error formatted(Errc::no_space, 0, "tier '{}': {} of {} bytes, {:016x}", path, 123456789,
                          UINT64_MAX, 0xabcdef);
    const Error native = system_error(ENOMEM, "mapping '{}' and '{}'", path, path);
    const Error unknown = system_error(98765, "what is this");
    Error copy = native;
    copy = formatted;
    const Result<std::unique_ptr<int>> result = copy;
    EXPECT_EQ(allocations.allocations(), 0U);
    EXPECT_FALSE(result.has_value());
    EXPECT_NE(std::strstr(unknown.message(), "98765"), nullptr) << unknown.message();
}

TEST(Error, ErrnoBecomesACodeToActOn) {
    const std::vector<std::pair<int, Errc>> expected{{ENOMEM, Errc::out_of_memory},
                                                     {ENOSPC, Errc::no_space},
                                                     {EDQUOT, Errc::no_space},
                                                     {EFBIG, Errc::no_space},
                                                     {EACCES, Errc::permission},
                                                     {EPERM, Errc::permission},
                                                     {EROFS, Errc::permission},
                                                     {ELOOP, Errc::permission},
                                                     {ENOENT, Errc::not_found},
                                                     {ENOTDIR, Errc::not_found},
                                                     {EWOULDBLOCK, Errc::busy},
                                                     {EBUSY, Errc::busy},
                                                     {EINVAL, Errc::invalid_argument},
                                                     {EISDIR, Errc::invalid_argument},
                                                     {ENAMETOOLONG, Errc::invalid_argument},
                                                     {ENOSYS, Errc::unsupported},
                                                     {EOPNOTSUPP, Errc::unsupported},
                                                     {EIO, Errc::io},
                                                     {EBADF, Errc::io}};
    for (const auto& [native, code] : expected) {
        EXPECT_EQ(code_of_errno(native), code) << std::strerror(native);
        const Error error = system_error(native, "x");
        EXPECT_EQ(error.code(), code);
        EXPECT_EQ(error.message(), "x: " + std::string(std::strerror(native)));
    }
}

TEST(Error, EveryCodeHasAFixedNumberAndAName) {
    // The numbers are part of the C interface.
    constexpr std::array<std::string_view, 13> kNames{
        "unknown",    "invalid_argument", "out_of_memory", "no_space",
        "closed",     "not_found",        "busy",          "io",
        "permission", "unsupported",      "corrupt",       "cancelled",
        "unknown"};
    for (std::size_t number = 0; number < kNames.size(); ++number) {
        EXPECT_EQ(name(static_cast<Errc>(number)), kNames[number]);
    }
}

Result<int> half(int value) {
    if (value % 2 != 0) return Error(Errc::invalid_argument, 0, "{} is odd", value);
    return value / 2;
}

Result<int> quarter(int value, int& reached) {
    FROSTLINE_TRY(const int first, half(value));
    ++reached;
    FROSTLINE_TRY(const int second, half(first));
    ++reached;
    return second;
}

Result<void> both_even(int first, int second) {
    FROSTLINE_TRY_VOID(half(first));
    FROSTLINE_TRY_VOID(half(second));
    return ok();
}

TEST(Result, PassesValuesOnAndStopsAtTheFirstError) {
    int reached = 0;
    EXPECT_EQ(*quarter(12, reached), 3);
    EXPECT_EQ(reached, 2);
    EXPECT_STREQ(quarter(7, reached).error().message(), "7 is odd");
    EXPECT_EQ(reached, 2);
    EXPECT_STREQ(quarter(6, reached).error().message(), "3 is odd");
    EXPECT_EQ(reached, 3);
    EXPECT_TRUE(both_even(2, 4).has_value());
    EXPECT_STREQ(both_even(2, 5).error().message(), "5 is odd");
}

Result<std::unique_ptr<int>> boxed(int value) {
    FROSTLINE_TRY(const int halved, half(value));
    return std::make_unique<int>(halved);
}

Result<int> unboxed(int value) {
    FROSTLINE_TRY(const std::unique_ptr<int> box, boxed(value));
    return *box;
}

TEST(Result, CarriesWhatCanOnlyBeMoved) {
    EXPECT_EQ(*unboxed(8), 4);
    EXPECT_EQ(unboxed(9).error().code(), Errc::invalid_argument);
}

}  // namespace
}  // namespace frostline
