// Copies and fills: which wait, which do not, what they may touch, and how long they take.
#include <array>
#include <chrono>

#include "tests/emulator/driver_fixture.h"

namespace frostline::emulator_test {
namespace {

using ::testing::Each;

class CopyTest : public DriverTest {
   protected:
    static std::vector<frostline_emulator_operation> timeline() {
        std::vector<frostline_emulator_operation> operations(
            frostline_emulator_timeline(nullptr, 0));
        frostline_emulator_timeline(operations.data(), operations.size());
        return operations;
    }
    /// The clock of the timeline. Taken before work is submitted: an engine may be late to begin,
    /// which an operation's own start would hide.
    static std::uint64_t now_ns() {
        return static_cast<std::uint64_t>(
            std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
    }
    /// From `begin_ns` to the end of the last operation of that kind.
    static double seconds_until(std::uint64_t begin_ns, int kind) {
        std::uint64_t end = begin_ns;
        for (const auto& operation : timeline()) {
            if (operation.kind == kind) end = std::max(end, operation.end_ns);
        }
        return static_cast<double>(end - begin_ns) / 1e9;
    }
};

TEST_F(CopyTest, EveryDirectionMovesTheBytes) {
    std::vector<unsigned char> source(1000);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i);
    const CUdeviceptr first = allocate(1000);
    const CUdeviceptr second = allocate(1000);
    ASSERT_CUDA_OK(cuMemcpyHtoD(first, source.data(), 1000));
    ASSERT_CUDA_OK(cuMemcpyDtoD(second, first, 1000));
    EXPECT_EQ(read(second, 1000), source);
    std::vector<unsigned char> target(1000);
    const auto address = [](const void* p) { return reinterpret_cast<CUdeviceptr>(p); };
    ASSERT_CUDA_OK(cuMemcpy(address(target.data()), second, 1000));
    EXPECT_EQ(target, source);
    std::fill(target.begin(), target.end(), 0);
    ASSERT_CUDA_OK(cuMemcpy(address(target.data()), address(source.data()), 1000));
    EXPECT_EQ(target, source);
    ASSERT_CUDA_OK(cuMemFree(first));
    ASSERT_CUDA_OK(cuMemFree(second));
}

TEST_F(CopyTest, CopiesOnTheDeviceDoNotWait) {
    start("latency_us=100000");
    const CUdeviceptr memory = allocate(kMiB);
    ASSERT_CUDA_OK(cuMemcpyDtoD(memory, memory + kMiB / 2, kMiB / 2));
    EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    ASSERT_CUDA_OK(cuMemsetD8(memory, 1, kMiB));
    EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    ASSERT_CUDA_OK(cuStreamSynchronize(nullptr));
    // From pinned memory the plain copy is complete when it returns; from pageable memory the
    // source has been read.
    std::byte* const host = pinned(kMiB);
    ASSERT_CUDA_OK(cuMemcpyHtoD(memory, host, kMiB));
    EXPECT_CUDA_OK(cuStreamQuery(nullptr));
    const std::vector<std::byte> pageable(1000);
    ASSERT_CUDA_OK(cuMemcpyHtoD(memory, pageable.data(), 1000));
    EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    ASSERT_CUDA_OK(cuStreamSynchronize(nullptr));
    ASSERT_CUDA_OK(cuMemFreeHost(host));
    ASSERT_CUDA_OK(cuMemFree(memory));
}

TEST_F(CopyTest, AsynchronousCopiesTakeEffectAtTheirEnd) {
    start("latency_us=50000");
    const CUdeviceptr memory = allocate(1000);
    auto* const host = reinterpret_cast<unsigned char*>(pinned(1000));
    const CUstream s = stream();
    ASSERT_CUDA_OK(cuMemsetD8Async(memory, 1, 1000, s));
    ASSERT_CUDA_OK(cuStreamSynchronize(s));
    // The source changes after the call, and the copy takes it as it is at its end.
    ASSERT_CUDA_OK(cuMemcpyHtoDAsync(memory, host, 1000, s));
    std::fill_n(host, 1000, 2);
    ASSERT_CUDA_OK(cuStreamSynchronize(s));
    EXPECT_THAT(read(memory, 1000), Each(2));
    ASSERT_CUDA_OK(cuStreamDestroy(s));
    ASSERT_CUDA_OK(cuMemFreeHost(host));
    ASSERT_CUDA_OK(cuMemFree(memory));
}

TEST_F(CopyTest, RangesAreCheckedAtTheCall) {
    const CUdeviceptr memory = allocate(1000);
    std::array<std::byte, 2000> host{};
    EXPECT_EQ(cuMemcpyHtoD(memory, host.data(), 1001), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpyDtoH(host.data(), memory + 500, 501), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemsetD8(memory, 0, 1001), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemsetD32(memory + 2, 0, 4), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpyHtoD(5, host.data(), 10), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpyHtoD(memory, reinterpret_cast<void*>(memory), 10), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"copy-out-of-range", "copy-out-of-range", "copy-out-of-range", "bad-value",
                   "unmapped-access", "bad-value"});
    EXPECT_CUDA_OK(cuMemcpyHtoD(memory, host.data(), 0));
    ASSERT_CUDA_OK(cuMemFree(memory));
}

TEST_F(CopyTest, FillsOfAllWidths) {
    const CUdeviceptr memory = allocate(64);
    ASSERT_CUDA_OK(cuMemsetD8(memory, 0, 64));
    ASSERT_CUDA_OK(cuMemsetD16(memory, 0x0102, 2));
    ASSERT_CUDA_OK(cuMemsetD32(memory + 4, 0x03040506, 1));
    ASSERT_CUDA_OK(cuMemsetD2D8(memory + 16, 16, 7, 2, 3));
    const auto bytes = read(memory, 64);
    EXPECT_THAT(std::vector<int>(bytes.begin(), bytes.begin() + 8),
                ::testing::ElementsAre(2, 1, 2, 1, 6, 5, 4, 3));
    for (const std::size_t at : {16, 17, 32, 33, 48, 49}) EXPECT_EQ(bytes[at], 7) << at;
    EXPECT_EQ(bytes[18], 0);
    ASSERT_CUDA_OK(cuMemFree(memory));
}

TEST_F(CopyTest, RowsAreCopiedWithTheirPitches) {
    CUdeviceptr memory = 0;
    std::size_t pitch = 0;
    ASSERT_CUDA_OK(cuMemAllocPitch(&memory, &pitch, 10, 3, 4));
    EXPECT_GE(pitch, 10u);
    std::array<unsigned char, 30> source{};
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i + 1);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = source.data();
    copy.srcPitch = 10;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = memory;
    copy.dstPitch = pitch;
    copy.WidthInBytes = 10;
    copy.Height = 3;
    ASSERT_CUDA_OK(cuMemcpy2D(&copy));
    EXPECT_EQ(read(memory + 2 * pitch, 1)[0], 21);
    copy.dstPitch = 5;
    EXPECT_EQ(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"bad-value"});
    ASSERT_CUDA_OK(cuMemFree(memory));
}

// A lower bound holds on any machine; that the rate is also reached depends on what else runs.
TEST_F(CopyTest, ThrottledCopiesAreNoFasterThanTheyMayBe) {
    start("memory=64MiB,h2d_bytes_per_s=1GiB,d2h_bytes_per_s=1GiB");
    const CUdeviceptr memory = allocate(32 * kMiB);
    std::byte* const host = pinned(32 * kMiB);
    const CUstream down = stream();
    const CUstream up = stream();
    const std::uint64_t begin = now_ns();
    for (std::size_t at = 0; at < 16 * kMiB; at += kMiB) {
        ASSERT_CUDA_OK(cuMemcpyHtoDAsync(memory + at, host + at, kMiB, down));
        const std::size_t other = at + 16 * kMiB;
        ASSERT_CUDA_OK(cuMemcpyDtoHAsync(host + other, memory + other, kMiB, up));
    }
    ASSERT_CUDA_OK(cuCtxSynchronize());
    const double each = 16.0 / 1024;
    EXPECT_GE(seconds_until(begin, FROSTLINE_EMULATOR_COPY_H2D), each);
    EXPECT_GE(seconds_until(begin, FROSTLINE_EMULATOR_COPY_D2H), each);
    ASSERT_CUDA_OK(cuStreamDestroy(down));
    ASSERT_CUDA_OK(cuStreamDestroy(up));
    ASSERT_CUDA_OK(cuMemFreeHost(host));
    ASSERT_CUDA_OK(cuMemFree(memory));
}

TEST_F(CopyTest, BothDirectionsRunAtOnce) {
    start("latency_us=100000");
    const CUdeviceptr memory = allocate(2 * kMiB);
    std::byte* const host = pinned(2 * kMiB);
    const CUstream down = stream();
    const CUstream up = stream();
    frostline_emulator_clear_timeline();
    ASSERT_CUDA_OK(cuMemcpyHtoDAsync(memory, host, kMiB, down));
    ASSERT_CUDA_OK(cuMemcpyDtoHAsync(host + kMiB, memory + kMiB, kMiB, up));
    ASSERT_CUDA_OK(cuCtxSynchronize());
    const auto operations = timeline();
    ASSERT_EQ(operations.size(), 2u);
    EXPECT_LT(operations[0].start_ns, operations[1].end_ns);
    EXPECT_LT(operations[1].start_ns, operations[0].end_ns);
    EXPECT_EQ(operations[0].bytes, kMiB);
    ASSERT_CUDA_OK(cuStreamDestroy(down));
    ASSERT_CUDA_OK(cuStreamDestroy(up));
    ASSERT_CUDA_OK(cuMemFreeHost(host));
    ASSERT_CUDA_OK(cuMemFree(memory));
}

TEST_F(CopyTest, CopiesOfOneStreamFollowEachOther) {
    start("latency_us=2000");
    const CUdeviceptr memory = allocate(kMiB);
    std::byte* const host = pinned(kMiB);
    const CUstream s = stream();
    frostline_emulator_clear_timeline();
    ASSERT_CUDA_OK(cuMemcpyHtoDAsync(memory, host, kMiB, s));
    ASSERT_CUDA_OK(cuMemcpyDtoHAsync(host, memory, kMiB, s));
    ASSERT_CUDA_OK(cuStreamSynchronize(s));
    const auto operations = timeline();
    ASSERT_EQ(operations.size(), 2u);
    EXPECT_LE(operations[0].end_ns, operations[1].start_ns);
    ASSERT_CUDA_OK(cuStreamDestroy(s));
    ASSERT_CUDA_OK(cuMemFreeHost(host));
    ASSERT_CUDA_OK(cuMemFree(memory));
}

TEST_F(CopyTest, ACopyThatHadToWaitStillTakesItsTime) {
    start("latency_us=30000");
    const CUdeviceptr memory = allocate(2 * kMiB);
    std::byte* const host = pinned(2 * kMiB);
    const CUstream first = stream();
    const CUstream second = stream();
    const CUevent done = event(CU_EVENT_DISABLE_TIMING);
    frostline_emulator_clear_timeline();
    const std::uint64_t begin = now_ns();
    ASSERT_CUDA_OK(cuMemcpyHtoDAsync(memory, host, kMiB, first));
    ASSERT_CUDA_OK(cuEventRecord(done, first));
    ASSERT_CUDA_OK(cuStreamWaitEvent(second, done, 0));
    ASSERT_CUDA_OK(cuMemcpyDtoHAsync(host + kMiB, memory, kMiB, second));
    ASSERT_CUDA_OK(cuStreamSynchronize(second));
    const auto operations = timeline();
    ASSERT_EQ(operations.size(), 2u);
    EXPECT_GE(operations[1].end_ns - begin, 60'000'000u);
    EXPECT_LE(operations[0].end_ns, operations[1].start_ns);
    ASSERT_CUDA_OK(cuEventDestroy(done));
    ASSERT_CUDA_OK(cuStreamDestroy(first));
    ASSERT_CUDA_OK(cuStreamDestroy(second));
    ASSERT_CUDA_OK(cuMemFreeHost(host));
    ASSERT_CUDA_OK(cuMemFree(memory));
}

TEST_F(CopyTest, NothingIsDoneInABrokenContext) {
    const CUdeviceptr space = reserve(kGranule);
    const auto handle = create(kGranule);
    ASSERT_CUDA_OK(cuMemMap(space, kGranule, 0, handle, 0));
    const CUdeviceptr memory = allocate(100);
    std::byte* const host = pinned(100);
    host[0] = std::byte{9};
    const CUstream s = stream();
    Gate gate;
    gate.close(s);
    ASSERT_CUDA_OK(cuMemsetD8Async(memory, 1, 100, s));
    ASSERT_CUDA_OK(cuMemsetD8Async(space, 1, 100, s));
    ASSERT_CUDA_OK(cuMemcpyDtoHAsync(host, memory, 100, s));
    gate.open();
    EXPECT_EQ(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(host[0], std::byte{9});
    expect_misuse({"access-not-set"});
    ASSERT_CUDA_OK(cuMemUnmap(space, kGranule));
    ASSERT_CUDA_OK(cuMemRelease(handle));
    ASSERT_CUDA_OK(cuMemAddressFree(space, kGranule));
    ASSERT_CUDA_OK(cuDevicePrimaryCtxReset(0));
    context_ = nullptr;
}

}  // namespace
}  // namespace frostline::emulator_test
