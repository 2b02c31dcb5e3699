// Memory under a second address: through IPC handles, and through exported descriptors.
#include <unistd.h>

#include "tests/emulator/kernel_fixture.h"

namespace frostline::emulator_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

using IpcTest = KernelTest;

TEST_F(IpcTest, OpensAnAllocationAtAnotherAddress) {
    const CUdeviceptr data = ints(4);
    CUipcMemHandle handle{};
    ASSERT_CUDA_OK(cuIpcGetMemHandle(&handle, data));
    CUdeviceptr opened = 0;
    ASSERT_CUDA_OK(cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    EXPECT_NE(opened, data);
    ASSERT_CUDA_OK(fill(opened, 9, 4, nullptr));
    EXPECT_THAT(read_ints(data, 4), Each(9));
    CUdeviceptr again = 0;
    ASSERT_CUDA_OK(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    EXPECT_EQ(again, opened);
    EXPECT_CUDA_OK(cuIpcCloseMemHandle(opened));
    EXPECT_THAT(read_ints(opened, 4), Each(9));
    EXPECT_CUDA_OK(cuIpcCloseMemHandle(opened));
    EXPECT_EQ(cuIpcCloseMemHandle(opened), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"not-an-allocation"});
}

// C11: an IPC handle is asked for a mapped range.
TEST_F(IpcTest, C11MappedMemoryHasNoHandle) {
    const Mapping mapping;
    CUipcMemHandle handle{};
    EXPECT_EQ(cuIpcGetMemHandle(&handle, mapping.address), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"not-exportable"});
}

TEST_F(IpcTest, AFreedAllocationCannotBeOpened) {
    const CUdeviceptr data = ints(4);
    CUipcMemHandle handle{};
    ASSERT_CUDA_OK(cuIpcGetMemHandle(&handle, data));
    ASSERT_CUDA_OK(cuMemFree(data));
    CUdeviceptr opened = 0;
    EXPECT_EQ(cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
              CUDA_ERROR_INVALID_HANDLE);
    expect_misuse({"destroyed-handle"});
    handle = {};
    EXPECT_EQ(cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
              CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"bad-value"});
}

TEST_F(IpcTest, EventsHaveNoHandles) {
    CUipcEventHandle handle{};
    EXPECT_EQ(cuIpcGetEventHandle(&handle, event()), CUDA_ERROR_NOT_SUPPORTED);
}

class SharingTest : public KernelTest {
   protected:
    static constexpr std::size_t kBytes = std::size_t{2} << 20;

    CUmemGenericAllocationHandle create(CUmemAllocationHandleType type) {
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        properties.requestedHandleTypes = type;
        CUmemGenericAllocationHandle handle = 0;
        EXPECT_CUDA_OK(cuMemCreate(&handle, kBytes, &properties, 0));
        return handle;
    }
    static CUdeviceptr map(CUmemGenericAllocationHandle handle) {
        CUdeviceptr address = 0;
        CUmemAccessDesc access{};
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        EXPECT_CUDA_OK(cuMemAddressReserve(&address, kBytes, 0, 0, 0));
        EXPECT_CUDA_OK(cuMemMap(address, kBytes, 0, handle, 0));
        EXPECT_CUDA_OK(cuMemSetAccess(address, kBytes, &access, 1));
        return address;
    }
    static CUresult import(int file, CUmemGenericAllocationHandle& handle) {
        return cuMemImportFromShareableHandle(
            &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    }
};

TEST_F(SharingTest, ADescriptorNamesTheSameMemory) {
    const auto handle = create(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    int file = -1;
    ASSERT_CUDA_OK(
        cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    const CUdeviceptr data = map(handle);
    CUmemGenericAllocationHandle imported = 0;
    ASSERT_CUDA_OK(import(file, imported));
    ASSERT_EQ(close(file), 0);
    const CUdeviceptr second = map(imported);
    ASSERT_CUDA_OK(fill(data, 6, 4, nullptr));
    EXPECT_THAT(read_ints(second, 4), Each(6));
    EXPECT_CUDA_OK(cuMemRelease(imported));
    EXPECT_CUDA_OK(cuMemRelease(handle));
    EXPECT_THAT(read_ints(second, 4), Each(6));
}

TEST_F(SharingTest, ADescriptorKeepsTheMemoryOfAReleasedHandle) {
    const auto handle = create(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    int file = -1;
    ASSERT_CUDA_OK(
        cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    const CUdeviceptr data = map(handle);
    ASSERT_CUDA_OK(fill(data, 5, 4, nullptr));
    ASSERT_CUDA_OK(cuStreamSynchronize(nullptr));
    ASSERT_CUDA_OK(cuMemUnmap(data, kBytes));
    ASSERT_CUDA_OK(cuMemRelease(handle));
    // Nothing in this process knows the memory any more, as in a process that is given it.
    CUmemGenericAllocationHandle imported = 0;
    ASSERT_CUDA_OK(import(file, imported));
    ASSERT_EQ(close(file), 0);
    EXPECT_THAT(read_ints(map(imported), 4), Each(5));
}

TEST_F(SharingTest, OnlyExportableMemoryIsExported) {
    const auto handle = create(CU_MEM_HANDLE_TYPE_NONE);
    int file = -1;
    EXPECT_EQ(
        cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"not-exportable"});
    EXPECT_CUDA_OK(cuMemRelease(handle));
    EXPECT_EQ(
        cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"destroyed-handle"});
}

TEST_F(SharingTest, OtherDescriptorsAreRefused) {
    int ends[2] = {-1, -1};
    ASSERT_EQ(pipe(ends), 0);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(import(ends[0], handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(import(-1, handle), CUDA_ERROR_INVALID_VALUE);
    expect_misuse({"bad-value", "bad-value"});
    ASSERT_EQ(close(ends[0]), 0);
    ASSERT_EQ(close(ends[1]), 0);
}

}  // namespace
}  // namespace frostline::emulator_test
