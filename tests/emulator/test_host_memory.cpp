// Pinned host memory and what pointers say of themselves.
#include <sys/mman.h>

#include <algorithm>
#include <array>

#include "tests/emulator/driver_fixture.h"

namespace frostline::emulator_test {
namespace {

using ::testing::Each;

class HostMemoryTest : public DriverTest {
   protected:
    void SetUp() override {
        DriverTest::SetUp();
        void* const got =
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(got, MAP_FAILED);
        host_ = static_cast<std::byte*>(got);
    }
    void TearDown() override {
        ASSERT_EQ(munmap(host_, kBytes), 0);
        DriverTest::TearDown();
    }
    template <class Value>
    static Value ask(CUdeviceptr address, CUpointer_attribute attribute) {
        Value value{};
        EXPECT_CUDA_OK(cuPointerGetAttribute(&value, attribute, address));
        return value;
    }
    static CUdeviceptr address_of(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }
    static constexpr std::size_t kPage = 4096;
    static constexpr std::size_t kBytes = 64 * kPage;
    std::byte* host_ = nullptr;
};

TEST_F(HostMemoryTest, RegisteredMemoryIsCopiedAsynchronously) {
    ASSERT_CUDA_OK(cuMemHostRegister(host_, kBytes, 0));
    const CUdeviceptr memory = allocate(kBytes);
    const CUstream s = stream();
    Gate gate;
    gate.close(s);
    ASSERT_CUDA_OK(cuMemcpyHtoDAsync(memory, host_, kBytes, s));
    std::fill_n(host_, kBytes, std::byte{3});
    gate.open();
    ASSERT_CUDA_OK(cuStreamSynchronize(s));
    EXPECT_THAT(read(memory, kBytes), Each(3));
    ASSERT_CUDA_OK(cuMemHostUnregister(host_));
    EXPECT_EQ(cuMemHostUnregister(host_), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    expect_misuse({"double-free"});
    ASSERT_CUDA_OK(cuStreamDestroy(s));
    ASSERT_CUDA_OK(cuMemFree(memory));
}

TEST_F(HostMemoryTest, RegistrationsThatShareAPageOverlap) {
    ASSERT_CUDA_OK(cuMemHostRegister(host_ + 100, kPage, 0));
    EXPECT_EQ(cuMemHostRegister(host_, kBytes, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    EXPECT_EQ(cuMemHostRegister(host_, 50, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    EXPECT_EQ(cuMemHostRegister(host_ + 100, kPage, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    expect_misuse({"host-register-overlap", "host-register-overlap", "host-register-overlap"});
    ASSERT_CUDA_OK(cuMemHostRegister(host_ + 2 * kPage, kPage, 0));
    ASSERT_CUDA_OK(cuMemHostUnregister(host_ + 2 * kPage));
    ASSERT_CUDA_OK(cuMemHostUnregister(host_ + 100));
}

TEST_F(HostMemoryTest, ACopyDoesNotCrossFromOneRegistrationIntoTheNext) {
    ASSERT_CUDA_OK(cuMemHostRegister(host_, kBytes / 2, 0));
    ASSERT_CUDA_OK(cuMemHostRegister(host_ + kBytes / 2, kBytes / 2, 0));
    const CUdeviceptr memory = allocate(kBytes);
    const CUstream s = stream();
    EXPECT_EQ(cuMemcpyHtoDAsync(memory, host_ + kPage, kBytes / 2, s), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpyDtoH(host_, memory, kBytes), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"copy-across-registrations", "copy-across-registrations"});
    ASSERT_CUDA_OK(cuMemcpyHtoDAsync(memory, host_, kBytes / 2, s));
    ASSERT_CUDA_OK(cuMemcpyHtoDAsync(memory, host_ + kBytes / 2, kBytes / 2, s));
    ASSERT_CUDA_OK(cuStreamSynchronize(s));
    ASSERT_CUDA_OK(cuMemHostUnregister(host_));
    ASSERT_CUDA_OK(cuMemHostUnregister(host_ + kBytes / 2));
    ASSERT_CUDA_OK(cuStreamDestroy(s));
    ASSERT_CUDA_OK(cuMemFree(memory));
}

TEST_F(HostMemoryTest, ReadOnlyRegistrationsAreNotWritten) {
    ASSERT_CUDA_OK(cuMemHostRegister(host_, kBytes, CU_MEMHOSTREGISTER_READ_ONLY));
    const CUdeviceptr memory = allocate(kBytes);
    EXPECT_CUDA_OK(cuMemcpyHtoD(memory, host_, kBytes));
    EXPECT_EQ(cuMemcpyDtoH(host_, memory, kBytes), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_misuse({"read-only"});
    ASSERT_CUDA_OK(cuDevicePrimaryCtxReset(0));
    context_ = nullptr;
}

// A driver pins pages: whoever counts what is resident has to count these.
TEST_F(HostMemoryTest, RegisteredPagesAreResidentAndKeepTheirContent) {
    const auto resident = [&] {
        std::array<unsigned char, kBytes / kPage> pages{};
        EXPECT_EQ(mincore(host_, kBytes, pages.data()), 0);
        return std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1U; });
    };
    host_[5 * kPage] = std::byte{7};
    EXPECT_EQ(resident(), 1);
    ASSERT_CUDA_OK(cuMemHostRegister(host_ + kPage + 1, 8 * kPage, 0));
    EXPECT_EQ(resident(), 9) << "the pages that it lies in, and no others";
    EXPECT_EQ(host_[5 * kPage], std::byte{7});
    ASSERT_CUDA_OK(cuMemHostUnregister(host_ + kPage + 1));
}

TEST_F(HostMemoryTest, WhatIsNotMappedOrTooLargeIsRefused) {
    ASSERT_EQ(munmap(host_ + kPage, kPage), 0);
    EXPECT_EQ(cuMemHostRegister(host_, 2 * kPage, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemHostRegister(nullptr, kPage, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemHostRegister(host_, 0, 0), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"bad-value", "bad-value", "bad-value"});
    frostline_emulator_limit_registration(4 * kPage);
    EXPECT_EQ(cuMemHostRegister(host_ + 2 * kPage, 8 * kPage, 0), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_CUDA_OK(cuMemHostRegister(host_ + 2 * kPage, 4 * kPage, 0));
    ASSERT_CUDA_OK(cuMemHostUnregister(host_ + 2 * kPage));
}

TEST_F(HostMemoryTest, UnregisteringUnderWorkIsReportedAndWaits) {
    start("latency_us=100000");
    ASSERT_CUDA_OK(cuMemHostRegister(host_, kBytes, 0));
    const CUdeviceptr memory = allocate(kBytes);
    const CUstream s = stream();
    ASSERT_CUDA_OK(cuMemcpyHtoDAsync(memory, host_, kBytes, s));
    EXPECT_CUDA_OK(cuMemHostUnregister(host_));
    EXPECT_CUDA_OK(cuStreamQuery(s));
    expect_misuse({"unregister-under-work"});
    ASSERT_CUDA_OK(cuStreamDestroy(s));
    ASSERT_CUDA_OK(cuMemFree(memory));
}

TEST_F(HostMemoryTest, PinnedMemoryIsFreedOnce) {
    std::byte* const memory = pinned(100);
    unsigned flags = 99;
    ASSERT_CUDA_OK(cuMemHostGetFlags(&flags, memory + 50));
    EXPECT_EQ(flags, 0u);
    CUdeviceptr device = 0;
    ASSERT_CUDA_OK(cuMemHostGetDevicePointer(&device, memory + 10, 0));
    EXPECT_EQ(device, address_of(memory + 10));
    ASSERT_CUDA_OK(cuMemFreeHost(memory));
    EXPECT_EQ(cuMemFreeHost(memory), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemFreeHost(host_), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"double-free", "not-an-allocation"});
}

TEST_F(HostMemoryTest, PointersSayWhatTheyAre) {
    const CUdeviceptr memory = allocate(1000);
    EXPECT_EQ(ask<unsigned>(memory + 5, CU_POINTER_ATTRIBUTE_MEMORY_TYPE),
              unsigned{CU_MEMORYTYPE_DEVICE});
    EXPECT_EQ(ask<CUdeviceptr>(memory + 5, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), memory);
    EXPECT_EQ(ask<std::size_t>(memory + 5, CU_POINTER_ATTRIBUTE_RANGE_SIZE), 1000u);
    EXPECT_EQ(ask<CUcontext>(memory, CU_POINTER_ATTRIBUTE_CONTEXT), context_);
    EXPECT_EQ(ask<int>(memory, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0);
    void* none = nullptr;
    EXPECT_EQ(cuPointerGetAttribute(&none, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory),
              CUDA_ERROR_INVALID_VALUE);
    std::byte* const host = pinned(100);
    EXPECT_EQ(ask<unsigned>(address_of(host), CU_POINTER_ATTRIBUTE_MEMORY_TYPE),
              unsigned{CU_MEMORYTYPE_HOST});
    EXPECT_EQ(ask<void*>(address_of(host + 3), CU_POINTER_ATTRIBUTE_HOST_POINTER), host + 3);
    EXPECT_EQ(cuPointerGetAttribute(&none, CU_POINTER_ATTRIBUTE_CONTEXT, address_of(host_)),
              CUDA_ERROR_INVALID_VALUE);
    const auto buffer = ask<unsigned long long>(memory, CU_POINTER_ATTRIBUTE_BUFFER_ID);
    ASSERT_CUDA_OK(cuMemFree(memory));
    const CUdeviceptr next = allocate(1000);
    EXPECT_NE(ask<unsigned long long>(next, CU_POINTER_ATTRIBUTE_BUFFER_ID), buffer);
    ASSERT_CUDA_OK(cuMemFree(next));
    ASSERT_CUDA_OK(cuMemFreeHost(host));
}

TEST_F(HostMemoryTest, SeveralAttributesOfUnknownMemoryAreZero) {
    unsigned type = 9;
    CUcontext context = context_;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_CONTEXT};
    void* places[] = {&type, &context};
    ASSERT_CUDA_OK(cuPointerGetAttributes(2, attributes, places, address_of(host_)));
    EXPECT_EQ(type, 0u);
    EXPECT_EQ(context, nullptr);
}

TEST_F(HostMemoryTest, AddressRangesAreTruthfulForMappings) {
    const CUdeviceptr space = reserve(2 * kGranule);
    const auto handle = create(kGranule);
    ASSERT_CUDA_OK(cuMemMap(space + kGranule, kGranule, 0, handle, 0));
    CUdeviceptr start = 0;
    std::size_t bytes = 0;
    ASSERT_CUDA_OK(cuMemGetAddressRange(&start, &bytes, space + kGranule + 5));
    EXPECT_EQ(start, space + kGranule);
    EXPECT_EQ(bytes, kGranule);
    EXPECT_EQ(cuMemGetAddressRange(&start, &bytes, space), CUDA_ERROR_NOT_FOUND);
    ASSERT_CUDA_OK(cuMemUnmap(space + kGranule, kGranule));
    ASSERT_CUDA_OK(cuMemRelease(handle));
    ASSERT_CUDA_OK(cuMemAddressFree(space, 2 * kGranule));
}

}  // namespace
}  // namespace frostline::emulator_test
