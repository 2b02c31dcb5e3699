// Proves the C face of host heaps: plain C can use all of it, and whatever is wrong with a call is
// refused in words, the heap being what it was before.
#include "tests/bindings/environment.h"

#include <gtest/gtest.h>
#include "frostline/heap.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

extern "C" int use_every_heap_function(void);

namespace frostline {
namespace {

constexpr std::size_t kMi = std::size_t{1} << 20;

void refused(frostline_status status, frostline_status expected, const char* said) {
    EXPECT_EQ(status, expected);
    EXPECT_NE(std::strstr(frostline_last_error(), said), nullptr)
        << "'" << frostline_last_error() << "' does not say '" << said << "'";
}

class CHeap : public testing::Test {
   protected:
    void SetUp() override {
        const std::array<const char*, 4> options{"kind=host", "capacity=16MiB", "name=h", nullptr};
        ASSERT_EQ(frostline_heap_open(options.data(), &heap_), FROSTLINE_OK)
            << frostline_last_error();
    }
    void TearDown() override {
        EXPECT_EQ(frostline_heap_close(heap_), FROSTLINE_OK) << frostline_last_error();
    }
    void* allocate(std::size_t size_bytes) {
        void* block = nullptr;
        EXPECT_EQ(frostline_heap_alloc(heap_, size_bytes, 0, nullptr, &block), FROSTLINE_OK)
            << frostline_last_error();
        return block;
    }
    frostline_heap_stats stats() {
        frostline_heap_stats now{};
        now.struct_size = sizeof(now);
        EXPECT_EQ(frostline_heap_get_stats(heap_, &now), FROSTLINE_OK);
        return now;
    }

    frostline_heap* heap_ = nullptr;
};

TEST(CHeapOpening, RefusesWhatItDoesNotUnderstand) {
    struct Case {
        std::vector<const char*> options;
        const char* said;
    };
    const Case cases[] = {
        {{nullptr}, "kind"},
        {{"kind", nullptr}, "name=value"},
        {{"kind=tape", nullptr}, "'tape'"},
        {{"kind=host", "colour=red", nullptr}, "'colour'"},
        {{"kind=host", "capacity=12Q", nullptr}, "'12Q'"},
        {{"kind=host", "capacity=0", nullptr}, "capacity"},
        {{"kind=host", "chunk=0", nullptr}, "chunk"},
        {{"kind=host", "chunk=100", nullptr}, "chunk"},
        {{"kind=host", "peers=1", nullptr}, "peers"},
        {{"kind=host", "gpu=0", nullptr}, "gpu"},
        {{"kind=host", "numa_node=-1", nullptr}, "'-1'"},
        {{"kind=host", "numa_node=12x", nullptr}, "'12x'"},
        {{"kind=host", "pin=perhaps", nullptr}, "'perhaps'"},
        {{"kind=host", "leaks=2", nullptr}, "leaks"},
        {{"kind=host", "debug=", nullptr}, "debug"},
        {{"kind=host", "trace=x", nullptr}, "trace"},
        {{"kind=device", "pin=1", nullptr}, "pin"},
        {{"kind=device", "numa_node=0", nullptr}, "numa_node"},
        {{"kind=device", "peers=1,,2", nullptr}, "peers"},
    };
    for (const Case& each : cases) {
        auto* heap = reinterpret_cast<frostline_heap*>(1);
        refused(frostline_heap_open(each.options.data(), &heap), FROSTLINE_INVALID_ARGUMENT,
                each.said);
        EXPECT_EQ(heap, nullptr) << "a failed call left something to close";
    }
    frostline_heap* heap = nullptr;
    refused(frostline_heap_open(nullptr, &heap), FROSTLINE_INVALID_ARGUMENT, "NULL");
    refused(frostline_heap_open(cases[0].options.data(), nullptr), FROSTLINE_INVALID_ARGUMENT,
            "NULL");
}

TEST(CHeapOpening, SaysWhenThereIsNoDriver) {
    const EnvironmentVariable none("FROSTLINE_CUDA_DRIVER", "/no/such/driver.so");
    for (const auto& kind : {std::pair("kind=device", "gpu=0"), std::pair("kind=host", "pin=1")}) {
        const std::array<const char*, 3> options{kind.first, kind.second, nullptr};
        frostline_heap* heap = nullptr;
        refused(frostline_heap_open(options.data(), &heap), FROSTLINE_NOT_FOUND,
                "/no/such/driver.so");
    }
}

TEST_F(CHeap, PlainCUsesEveryFunction) {
    EXPECT_EQ(use_every_heap_function(), 0)
        << "at that line of heap_c_interface.c: " << frostline_last_error();
}

TEST_F(CHeap, RefusesNullEverywhere) {
    void* const block = allocate(100);
    void* other = nullptr;
    std::size_t size = 0;
    int owns = 0;
    frostline_heap_stats figures{};
    figures.struct_size = sizeof(figures);
    const frostline_status all[] = {
        frostline_heap_alloc(nullptr, 100, 0, nullptr, &other),
        frostline_heap_alloc(heap_, 100, 0, nullptr, nullptr),
        frostline_heap_free(nullptr, block),
        frostline_heap_free_sized(nullptr, block, 100),
        frostline_heap_record_stream(nullptr, block, nullptr),
        frostline_heap_forget_stream(nullptr, nullptr),
        frostline_heap_size(nullptr, block, &size),
        frostline_heap_size(heap_, nullptr, &size),
        frostline_heap_size(heap_, block, nullptr),
        frostline_heap_owns(nullptr, block, &owns),
        frostline_heap_owns(heap_, block, nullptr),
        frostline_heap_trim(nullptr, 0, &size),
        frostline_heap_get_stats(nullptr, &figures),
        frostline_heap_get_stats(heap_, nullptr),
        frostline_heap_begin_step(nullptr),
        frostline_heap_write_trace(nullptr, "/tmp/trace"),
        frostline_heap_write_trace(heap_, nullptr),
    };
    for (std::size_t i = 0; i < std::size(all); ++i) {
        EXPECT_EQ(all[i], FROSTLINE_INVALID_ARGUMENT) << "call " << i;
    }
    figures.struct_size = 0;
    refused(frostline_heap_get_stats(heap_, &figures), FROSTLINE_INVALID_ARGUMENT, "struct_size");
    EXPECT_EQ(frostline_heap_close(nullptr), FROSTLINE_OK);
    EXPECT_EQ(frostline_heap_free(heap_, nullptr), FROSTLINE_OK);
    EXPECT_EQ(frostline_heap_trim(heap_, 0, nullptr), FROSTLINE_OK);
    EXPECT_EQ(stats().live_blocks, 1U);
    EXPECT_EQ(frostline_heap_free(heap_, block), FROSTLINE_OK);
}

TEST_F(CHeap, NoBytesAreSuccessAndNull) {
    void* block = this;
    EXPECT_EQ(frostline_heap_alloc(heap_, 0, 0, nullptr, &block), FROSTLINE_OK);
    EXPECT_EQ(block, nullptr);
    EXPECT_EQ(frostline_heap_free_sized(heap_, nullptr, 0), FROSTLINE_OK);
}

TEST_F(CHeap, RefusesRequestsThatCannotBeMet) {
    void* block = this;
    refused(frostline_heap_alloc(heap_, 17 * kMi, 0, nullptr, &block), FROSTLINE_NO_SPACE, "h");
    EXPECT_EQ(block, nullptr);
    refused(frostline_heap_alloc(heap_, SIZE_MAX, 0, nullptr, &block), FROSTLINE_NO_SPACE, "h");
    refused(frostline_heap_alloc(heap_, SIZE_MAX - 511, 2 * kMi, nullptr, &block),
            FROSTLINE_NO_SPACE, "h");
    for (const std::size_t alignment : {std::size_t{3}, 4 * kMi, SIZE_MAX}) {
        refused(frostline_heap_alloc(heap_, 100, alignment, nullptr, &block),
                FROSTLINE_INVALID_ARGUMENT, "alignment");
    }
    void* const most = allocate(12 * kMi);
    refused(frostline_heap_alloc(heap_, 12 * kMi, 0, nullptr, &block), FROSTLINE_NO_SPACE,
            "free some");
    EXPECT_EQ(frostline_heap_free(heap_, most), FROSTLINE_OK);
    EXPECT_EQ(stats().live_blocks, 0U);
}

TEST_F(CHeap, RefusesWhatIsNoLiveBlockAndCountsIt) {
    void* const block = allocate(3 * kMi);
    int foreign = 0;
    refused(frostline_heap_free(heap_, &foreign), FROSTLINE_INVALID_ARGUMENT, "not an address");
    refused(frostline_heap_free(heap_, static_cast<char*>(block) + 512), FROSTLINE_INVALID_ARGUMENT,
            "inside another");
    refused(frostline_heap_free_sized(heap_, block, 3 * kMi - 1), FROSTLINE_INVALID_ARGUMENT,
            "nothing was freed");
    std::size_t size = 0;
    refused(frostline_heap_size(heap_, &foreign, &size), FROSTLINE_INVALID_ARGUMENT,
            "not an address");
    EXPECT_EQ(frostline_heap_free_sized(heap_, block, 3 * kMi), FROSTLINE_OK);
    refused(frostline_heap_free(heap_, block), FROSTLINE_INVALID_ARGUMENT, "freed");
    EXPECT_EQ(stats().misuses, 5U);
    EXPECT_EQ(stats().live_bytes, 0U);
}

TEST_F(CHeap, RefusesStreamsForHostMemory) {
    int stream = 0;
    void* block = this;
    refused(frostline_heap_alloc(heap_, 100, 0, &stream, &block), FROSTLINE_UNSUPPORTED,
            "host memory");
    EXPECT_EQ(block, nullptr);
    void* const held = allocate(100);
    refused(frostline_heap_record_stream(heap_, held, &stream), FROSTLINE_UNSUPPORTED,
            "host memory");
    refused(frostline_heap_forget_stream(heap_, &stream), FROSTLINE_UNSUPPORTED, "host memory");
    EXPECT_EQ(frostline_heap_free(heap_, held), FROSTLINE_OK);
}

TEST_F(CHeap, IsClosedOnlyWhenNothingLivesAndSaysSoAfterwards) {
    void* const block = allocate(kMi);
    refused(frostline_heap_close(heap_), FROSTLINE_BUSY, "1 blocks live");
    std::memset(block, 1, kMi);
    EXPECT_EQ(frostline_heap_free(heap_, block), FROSTLINE_OK);
    frostline_heap* const late = heap_;
    ASSERT_EQ(frostline_heap_close(std::exchange(heap_, nullptr)), FROSTLINE_OK);

    void* other = nullptr;
    std::size_t size = 0;
    frostline_heap_stats figures{};
    figures.struct_size = sizeof(figures);
    const frostline_status all[] = {
        frostline_heap_alloc(late, 100, 0, nullptr, &other),
        frostline_heap_free(late, block),
        frostline_heap_free_sized(late, block, kMi),
        frostline_heap_record_stream(late, block, nullptr),
        frostline_heap_forget_stream(late, nullptr),
        frostline_heap_size(late, block, &size),
        frostline_heap_trim(late, 0, &size),
        frostline_heap_get_stats(late, &figures),
        frostline_heap_begin_step(late),
        frostline_heap_write_trace(late, "/tmp/trace"),
        frostline_heap_close(late),
    };
    for (std::size_t i = 0; i < std::size(all); ++i) {
        EXPECT_EQ(all[i], FROSTLINE_CLOSED) << "call " << i;
    }
    EXPECT_NE(std::strstr(frostline_last_error(), "closed"), nullptr);
}

TEST(CHeapInDebug, NamesThePlacesOfAMisuse) {
    const std::array<const char*, 4> options{"kind=host", "capacity=8MiB", "debug=1", nullptr};
    frostline_heap* heap = nullptr;
    ASSERT_EQ(frostline_heap_open(options.data(), &heap), FROSTLINE_OK);
    void* block = nullptr;
    ASSERT_EQ(frostline_heap_alloc(heap, 100, 0, nullptr, &block), FROSTLINE_OK);
    ASSERT_EQ(frostline_heap_free(heap, block), FROSTLINE_OK);
    refused(frostline_heap_free(heap, block), FROSTLINE_INVALID_ARGUMENT, "freed");
    EXPECT_NE(std::strstr(frostline_last_error(), "allocated"), nullptr) << frostline_last_error();
    EXPECT_EQ(frostline_heap_close(heap), FROSTLINE_OK);
}

TEST_F(CHeap, AProgramOfAnotherVersionGetsTheFiguresThatBothKnow) {
    void* const block = allocate(1000);
    frostline_heap_stats figures{};
    std::memset(&figures, 0xee, sizeof(figures));
    figures.struct_size = 2 * sizeof(std::size_t);
    EXPECT_EQ(frostline_heap_get_stats(heap_, &figures), FROSTLINE_OK);
    EXPECT_EQ(figures.struct_size, 2 * sizeof(std::size_t));
    EXPECT_EQ(figures.live_bytes, 1000U);
    EXPECT_EQ(figures.live_block_bytes, 0xeeeeeeeeeeeeeeeeU) << "beyond the caller's struct";
    EXPECT_EQ(frostline_heap_free(heap_, block), FROSTLINE_OK);
}

// 0, or which step went wrong.
int in_the_child(frostline_heap* heap, void* block) {
    void* other = nullptr;
    std::size_t size = 0;
    frostline_heap_stats figures{};
    figures.struct_size = sizeof(figures);
    if (frostline_heap_alloc(heap, 100, 0, nullptr, &other) != FROSTLINE_BUSY) return 1;
    if (std::strstr(frostline_last_error(), "forked child") == nullptr) return 2;
    if (frostline_heap_free(heap, block) != FROSTLINE_BUSY) return 3;
    if (frostline_heap_size(heap, block, &size) != FROSTLINE_BUSY) return 4;
    if (frostline_heap_get_stats(heap, &figures) != FROSTLINE_BUSY) return 5;
    if (frostline_heap_trim(heap, 0, &size) != FROSTLINE_BUSY) return 6;
    if (frostline_heap_close(heap) != FROSTLINE_OK) return 7;
    if (frostline_heap_free(heap, block) != FROSTLINE_CLOSED) return 8;
    const std::array<const char*, 3> options{"kind=host", "capacity=8MiB", nullptr};
    frostline_heap* own = nullptr;
    if (frostline_heap_open(options.data(), &own) != FROSTLINE_OK) return 9;
    if (frostline_heap_alloc(own, kMi, 0, nullptr, &other) != FROSTLINE_OK) return 10;
    std::memset(other, 1, kMi);
    if (frostline_heap_free(own, other) != FROSTLINE_OK) return 11;
    return frostline_heap_close(own) == FROSTLINE_OK ? 0 : 12;
}

TEST_F(CHeap, AForkedChildIsRefusedAndCanOpenItsOwn) {
    void* const block = allocate(kMi);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(in_the_child(heap_, block));
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0) << "that step of in_the_child()";
    EXPECT_EQ(frostline_heap_free(heap_, block), FROSTLINE_OK);
}

}  // namespace
}  // namespace frostline
