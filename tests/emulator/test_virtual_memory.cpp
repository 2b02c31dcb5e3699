// Reservations, physical handles and mappings: each rule of the documentation kept and broken.
#include <utility>

#include "tests/emulator/driver_fixture.h"

namespace frostline::emulator_test {
namespace {

using ::testing::Each;

class VirtualMemoryTest : public DriverTest {
   protected:
    void SetUp() override {
        DriverTest::SetUp();
        space_ = reserve(kSpace);
        handle_ = create(kGranule);
    }
    void TearDown() override {
        if (handle_ != 0) {
            EXPECT_CUDA_OK(cuMemRelease(handle_));
        }
        if (space_ != 0) {
            EXPECT_CUDA_OK(cuMemAddressFree(space_, kSpace));
        }
        DriverTest::TearDown();
    }
    void map(CUdeviceptr at, CUmemGenericAllocationHandle handle, std::size_t bytes = kGranule) {
        ASSERT_CUDA_OK(cuMemMap(at, bytes, 0, handle, 0));
        ASSERT_CUDA_OK(set_access(at, bytes));
    }
    static std::size_t free_bytes() {
        std::size_t free = 0;
        std::size_t total = 0;
        EXPECT_CUDA_OK(cuMemGetInfo(&free, &total));
        return free;
    }

    static constexpr std::size_t kSpace = 8 * kGranule;
    CUdeviceptr space_ = 0;
    CUmemGenericAllocationHandle handle_ = 0;
};

TEST_F(VirtualMemoryTest, MappedMemoryKeepsItsBytesThroughAnotherAddress) {
    map(space_, handle_);
    ASSERT_CUDA_OK(cuMemsetD8(space_, 7, kGranule));
    ASSERT_CUDA_OK(cuCtxSynchronize());
    ASSERT_CUDA_OK(cuMemUnmap(space_, kGranule));
    map(space_ + 2 * kGranule, handle_);
    EXPECT_THAT(read(space_ + 2 * kGranule, 100), Each(7));
    ASSERT_CUDA_OK(cuMemUnmap(space_ + 2 * kGranule, kGranule));
}

TEST_F(VirtualMemoryTest, OneHandleIsSeenAtSeveralAddresses) {
    map(space_, handle_);
    map(space_ + kGranule, handle_);
    ASSERT_CUDA_OK(cuMemsetD8(space_, 9, kGranule));
    EXPECT_THAT(read(space_ + kGranule, 100), Each(9));
    ASSERT_CUDA_OK(cuMemUnmap(space_, 2 * kGranule));
}

TEST_F(VirtualMemoryTest, MemoryLivesUntilItIsReleasedAndUnmapped) {
    const std::size_t before = free_bytes();
    map(space_, handle_);
    ASSERT_CUDA_OK(cuMemRelease(handle_));
    EXPECT_EQ(free_bytes(), before);
    ASSERT_CUDA_OK(cuMemsetD8(space_, 1, kGranule));
    EXPECT_THAT(read(space_, 10), Each(1));
    ASSERT_CUDA_OK(cuMemUnmap(space_, kGranule));
    EXPECT_EQ(free_bytes(), before + kGranule);
    EXPECT_EQ(cuMemRelease(handle_), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"double-release"});
    handle_ = 0;
}

TEST_F(VirtualMemoryTest, RetainTakesTheSameHandleOncemore) {
    map(space_, handle_);
    CUmemGenericAllocationHandle again = 0;
    ASSERT_CUDA_OK(
        cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(space_ + kGranule / 2)));
    EXPECT_EQ(again, handle_);
    ASSERT_CUDA_OK(cuMemRelease(handle_));
    ASSERT_CUDA_OK(cuMemUnmap(space_, kGranule));
    map(space_, again);
    ASSERT_CUDA_OK(cuMemUnmap(space_, kGranule));
    EXPECT_EQ(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(space_)),
              CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"not-mapped"});
}

TEST_F(VirtualMemoryTest, SizesAreMultiplesOfTheGranularity) {
    std::size_t granularity = 0;
    const CUmemAllocationProp properties = on_device(0);
    ASSERT_CUDA_OK(
        cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    EXPECT_EQ(granularity, kGranule);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(cuMemCreate(&handle, kGranule / 2, &properties, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemCreate(&handle, 0, &properties, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemMap(space_, kGranule / 2, 0, handle_, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemMap(space_ + 4096, kGranule, 0, handle_, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemMap(space_, 2 * kGranule, 0, handle_, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAddressReserve(&space_, 100, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"bad-size", "bad-size", "bad-size", "bad-size", "bad-size", "bad-size"});
}

TEST_F(VirtualMemoryTest, MapsBeginAtTheStartOfTheHandle) {
    EXPECT_EQ(cuMemMap(space_, kGranule, kGranule, handle_, 0), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"bad-offset"});
}

TEST_F(VirtualMemoryTest, MapsLieWithinOneReservation) {
    const auto two = create(2 * kGranule);
    EXPECT_EQ(cuMemMap(space_ + kSpace - kGranule, 2 * kGranule, 0, two, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemMap(kGranule, kGranule, 0, handle_, 0), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"not-reserved", "not-reserved"});
    ASSERT_CUDA_OK(cuMemRelease(two));
}

TEST_F(VirtualMemoryTest, NothingIsMappedOverAMapping) {
    map(space_, handle_);
    EXPECT_EQ(cuMemMap(space_, kGranule, 0, handle_, 0), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"map-over-mapping"});
    ASSERT_CUDA_OK(cuMemUnmap(space_, kGranule));
}

TEST_F(VirtualMemoryTest, UnmapCannotSplitAMapping) {
    const auto two = create(2 * kGranule);
    map(space_, two, 2 * kGranule);
    EXPECT_EQ(cuMemUnmap(space_, kGranule), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemUnmap(space_ + kGranule, kGranule), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(set_access(space_, kGranule), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemUnmap(space_, 3 * kGranule), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"split-mapping", "split-mapping", "split-mapping", "not-mapped"});
    ASSERT_CUDA_OK(cuMemUnmap(space_, 2 * kGranule));
    ASSERT_CUDA_OK(cuMemRelease(two));
}

TEST_F(VirtualMemoryTest, ReservationsAreFreedWholeAndEmpty) {
    map(space_, handle_);
    EXPECT_EQ(cuMemAddressFree(space_, kSpace), CUDA_ERROR_INVALID_VALUE);
    ASSERT_CUDA_OK(cuMemUnmap(space_, kGranule));
    EXPECT_EQ(cuMemAddressFree(space_, kGranule), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAddressFree(space_ + kGranule, kSpace - kGranule), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"free-mapped-reservation", "reservation-mismatch", "reservation-mismatch"});
}

TEST_F(VirtualMemoryTest, AccessIsSetAgainAfterEveryMap) {
    map(space_, handle_);
    ASSERT_CUDA_OK(cuMemUnmap(space_, kGranule));
    ASSERT_CUDA_OK(cuMemMap(space_, kGranule, 0, handle_, 0));
    unsigned long long flags = 99;
    CUmemLocation device{};
    device.type = CU_MEM_LOCATION_TYPE_DEVICE;
    ASSERT_CUDA_OK(cuMemGetAccess(&flags, &device, space_));
    EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    ASSERT_CUDA_OK(cuMemsetD8(space_, 1, 10));
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_misuse({"access-not-set"});
    // The error sticks to the context, and a reset heals.
    CUdeviceptr other = 0;
    EXPECT_EQ(cuMemAlloc(&other, 10), CUDA_ERROR_ILLEGAL_ADDRESS);
    ASSERT_CUDA_OK(cuMemUnmap(space_, kGranule));
    ASSERT_CUDA_OK(cuDevicePrimaryCtxReset(0));
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&context_, 0));
    ASSERT_CUDA_OK(cuCtxSetCurrent(context_));
}

TEST_F(VirtualMemoryTest, ReadOnlyAccessIsHonoured) {
    map(space_, handle_);
    ASSERT_CUDA_OK(cuMemsetD8(space_, 5, 10));
    ASSERT_CUDA_OK(cuCtxSynchronize());
    ASSERT_CUDA_OK(set_access(space_, kGranule, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    EXPECT_THAT(read(space_, 10), Each(5));
    ASSERT_CUDA_OK(cuMemsetD8(space_, 6, 10));
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_misuse({"read-only"});
    ASSERT_CUDA_OK(cuMemUnmap(space_, kGranule));
    ASSERT_CUDA_OK(cuDevicePrimaryCtxReset(0));
    context_ = nullptr;
}

TEST_F(VirtualMemoryTest, UnmappedAddressesAreNotCopied) {
    std::byte bytes[16] = {};
    EXPECT_EQ(cuMemcpyHtoD(space_, bytes, 16), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"unmapped-access"});
    map(space_, handle_);
    EXPECT_EQ(cuMemcpyHtoD(space_ + kGranule - 8, bytes, 16), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"copy-out-of-range"});
    ASSERT_CUDA_OK(cuMemUnmap(space_, kGranule));
}

TEST_F(VirtualMemoryTest, CopiesSpanNeighbouringMappings) {
    const auto other = create(kGranule);
    map(space_, handle_);
    map(space_ + kGranule, other);
    ASSERT_CUDA_OK(cuMemsetD8(space_ + kGranule - 8, 3, 16));
    EXPECT_THAT(read(space_ + kGranule - 8, 16), Each(3));
    ASSERT_CUDA_OK(cuMemUnmap(space_, 2 * kGranule));
    ASSERT_CUDA_OK(cuMemRelease(other));
}

TEST_F(VirtualMemoryTest, UnmapUnderWorkIsReportedAndWaits) {
    ASSERT_CUDA_OK(cuMemRelease(handle_));
    ASSERT_CUDA_OK(cuMemAddressFree(space_, kSpace));
    start("memory=64MiB,latency_us=100000");
    space_ = reserve(kSpace);
    handle_ = create(kGranule);
    map(space_, handle_);
    const CUstream s = stream();
    ASSERT_CUDA_OK(cuMemsetD8Async(space_, 6, kGranule, s));
    ASSERT_CUDA_OK(set_access(space_, kGranule, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    EXPECT_CUDA_OK(cuStreamQuery(s));
    expect_misuse({"unmap-under-work"});
    ASSERT_CUDA_OK(set_access(space_, kGranule));
    ASSERT_CUDA_OK(cuMemsetD8Async(space_, 7, kGranule, s));
    ASSERT_CUDA_OK(cuMemUnmap(space_, kGranule));
    EXPECT_CUDA_OK(cuStreamQuery(s));
    expect_misuse({"unmap-under-work"});
    // The work was done before the memory went.
    map(space_, handle_);
    EXPECT_THAT(read(space_, 10), Each(7));
    ASSERT_CUDA_OK(cuMemUnmap(space_, kGranule));
    ASSERT_CUDA_OK(cuStreamDestroy(s));
}

TEST_F(VirtualMemoryTest, CapacityIsTheDevices) {
    const CUmemAllocationProp properties = on_device(0);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(cuMemCreate(&handle, 64 * kMiB, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_CUDA_OK(cuMemCreate(&handle, 62 * kMiB, &properties, 0));
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_CUDA_OK(cuMemRelease(handle));
    ASSERT_CUDA_OK(cuMemAlloc(&address, 1));
    ASSERT_CUDA_OK(cuMemFree(address));
}

TEST_F(VirtualMemoryTest, HostMemoryByNumaNodeCostsTheDeviceNothing) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    properties.location.id = 0;
    const std::size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_CUDA_OK(cuMemCreate(&handle, 128 * kMiB, &properties, 0));
    EXPECT_EQ(free_bytes(), before);
    ASSERT_CUDA_OK(cuMemRelease(handle));
    properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    EXPECT_EQ(cuMemCreate(&handle, kGranule, &properties, 0), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"bad-value"});
}

TEST_F(VirtualMemoryTest, EachDeviceHasItsOwnAccess) {
    ASSERT_CUDA_OK(cuMemRelease(std::exchange(handle_, 0)));
    ASSERT_CUDA_OK(cuMemAddressFree(std::exchange(space_, 0), kSpace));
    start("devices=2,memory=64MiB");
    const CUdeviceptr space = reserve(kGranule);
    const auto handle = create(kGranule, 1);
    ASSERT_CUDA_OK(cuMemMap(space, kGranule, 0, handle, 0));
    ASSERT_CUDA_OK(set_access(space, kGranule, 1));
    // Device 0 is current, and the mapping is device 1's alone.
    ASSERT_CUDA_OK(cuMemsetD8(space, 1, 10));
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_misuse({"access-not-set"});
    CUcontext second = nullptr;
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&second, 1));
    ASSERT_CUDA_OK(cuCtxSetCurrent(second));
    ASSERT_CUDA_OK(cuMemsetD8(space, 2, 10));
    EXPECT_THAT(read(space, 10), Each(2));
    ASSERT_CUDA_OK(cuMemUnmap(space, kGranule));
    ASSERT_CUDA_OK(cuMemRelease(handle));
    ASSERT_CUDA_OK(cuMemAddressFree(space, kGranule));
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRelease(1));
}

TEST_F(VirtualMemoryTest, UnknownHandlesAreRefused) {
    EXPECT_EQ(cuMemRelease(12345), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemMap(space_, kGranule, 0, 12345, 0), CUDA_ERROR_INVALID_VALUE);
    ASSERT_CUDA_OK(cuMemRelease(handle_));
    EXPECT_EQ(cuMemMap(space_, kGranule, 0, handle_, 0), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"bad-handle", "bad-handle", "destroyed-handle"});
    handle_ = 0;
}

}  // namespace
}  // namespace frostline::emulator_test
