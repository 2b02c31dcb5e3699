// The emulator is there to be strict: for every kind of misuse that it knows there is one here that
// it reports, and a kind without one fails a test.
#include <array>
#include <map>
#include <string>
#include <vector>

#include "tests/emulator/kernel_fixture.h"

namespace frostline::emulator_test {
namespace {

class StrictnessTest : public KernelTest {
   public:
    void unmapped_access() {
        ASSERT_CUDA_OK(fill(0, 1, 1, nullptr));
        EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    void access_not_set() {
        const Mapping mapping;
        set_no_access(mapping);
        ASSERT_CUDA_OK(fill(mapping.address, 1, 1, nullptr));
        EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    void read_only() {
        Mapping mapping;
        mapping.allow(CU_MEM_ACCESS_FLAGS_PROT_READ);
        ASSERT_CUDA_OK(fill(mapping.address, 1, 1, nullptr));
        EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    void unmap_under_work() {
        Mapping mapping;
        const CUstream work = stream();
        under_work(
            work, [&] { EXPECT_CUDA_OK(fill(mapping.address, 1, 1, work)); },
            [&] { mapping.unmap(); });
    }
    void free_under_work() {
        const CUdeviceptr data = ints(1);
        const CUstream work = stream();
        under_work(
            work, [&] { EXPECT_CUDA_OK(fill(data, 1, 1, work)); },
            [&] { EXPECT_CUDA_OK(cuMemFree(data)); });
    }
    void unregister_under_work() {
        alignas(4096) static std::array<char, 4096> memory;
        const CUdeviceptr data = ints(1);
        const CUstream work = stream();
        ASSERT_CUDA_OK(cuMemHostRegister(memory.data(), memory.size(), 0));
        under_work(
            work, [&] { EXPECT_CUDA_OK(cuMemcpyHtoDAsync(data, memory.data(), 4, work)); },
            [&] { EXPECT_CUDA_OK(cuMemHostUnregister(memory.data())); });
    }
    void unload_under_work() {
        const CUstream work = stream();
        under_work(
            work, [] {}, [&] { EXPECT_CUDA_OK(cuModuleUnload(module_)); });
    }
    void wrong_device() {
        DriverTest::start("devices=2,leaks=0");
        CUcontext second = nullptr;
        const CUstream first = stream();
        ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&second, 1));
        ASSERT_CUDA_OK(cuCtxSetCurrent(second));
        EXPECT_EQ(cuEventRecord(event(), first), CUDA_ERROR_INVALID_HANDLE);
    }
    void peer_not_enabled() {
        start("devices=2,leaks=0");
        const CUdeviceptr data = ints(1);
        CUcontext second = nullptr;
        ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&second, 1));
        ASSERT_CUDA_OK(cuCtxSetCurrent(second));
        ASSERT_CUDA_OK(cuModuleLoad(&module_, FROSTLINE_EMULATOR_KERNELS));
        ASSERT_CUDA_OK(fill(data, 1, 1, nullptr));
        EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    void api_in_host_function() {
        const auto ask = [](void* result) {
            int count = 0;
            *static_cast<CUresult*>(result) = cuDeviceGetCount(&count);
        };
        CUresult result = CUDA_SUCCESS;
        ASSERT_CUDA_OK(cuLaunchHostFunc(nullptr, ask, &result));
        ASSERT_CUDA_OK(cuStreamSynchronize(nullptr));
        EXPECT_EQ(result, CUDA_ERROR_NOT_PERMITTED);
    }
    void illegal_during_capture() {
        const CUstream captured = stream();
        ASSERT_CUDA_OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
        EXPECT_EQ(cuStreamSynchronize(captured), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CUgraph graph = nullptr;
        EXPECT_EQ(cuStreamEndCapture(captured, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    void not_captured_whole() {
        const CUstream captured = stream();
        const CUstream forked = stream();
        const CUevent fork = event();
        CUgraph graph = nullptr;
        ASSERT_CUDA_OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
        ASSERT_CUDA_OK(cuEventRecord(fork, captured));
        ASSERT_CUDA_OK(cuStreamWaitEvent(forked, fork, 0));
        ASSERT_CUDA_OK(launch(kernel("do_nothing"), 1, forked));
        EXPECT_EQ(cuStreamEndCapture(captured, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    }
    void leak_at_exit() {
        DriverTest::start("");
        ints(1);
        // The context stays, because all of it would go with it.
        context_ = nullptr;
        frostline_emulator_restart("");
    }
    void no_context() {
        ASSERT_CUDA_OK(cuCtxSetCurrent(nullptr));
        CUdeviceptr address = 0;
        EXPECT_EQ(cuMemAlloc(&address, 4), CUDA_ERROR_INVALID_CONTEXT);
    }
    void event_not_recorded() {
        float elapsed = 0;
        EXPECT_EQ(cuEventElapsedTime(&elapsed, event(), event()), CUDA_ERROR_INVALID_HANDLE);
    }
    void double_free() {
        const CUdeviceptr data = ints(1);
        ASSERT_CUDA_OK(cuMemFree(data));
        EXPECT_EQ(cuMemFree(data), CUDA_ERROR_INVALID_VALUE);
    }
    void not_an_allocation() { EXPECT_EQ(cuMemFree(ints(2) + 4), CUDA_ERROR_INVALID_VALUE); }
    void unpooled_free() { EXPECT_NE(cuMemFreeAsync(ints(1), nullptr), CUDA_SUCCESS); }
    void host_register_overlap() {
        alignas(4096) static std::array<char, 4096> memory;
        ASSERT_CUDA_OK(cuMemHostRegister(memory.data(), memory.size(), 0));
        EXPECT_EQ(cuMemHostRegister(memory.data(), memory.size(), 0),
                  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    void copy_across_registrations() {
        alignas(4096) static std::array<char, 8192> memory;
        ASSERT_CUDA_OK(cuMemHostRegister(memory.data(), 4096, 0));
        ASSERT_CUDA_OK(cuMemHostRegister(memory.data() + 4096, 4096, 0));
        EXPECT_EQ(cuMemcpyHtoD(ints(2048), memory.data(), memory.size()), CUDA_ERROR_INVALID_VALUE);
    }
    void copy_out_of_range() {
        const std::array<char, 8192> source{};
        EXPECT_EQ(cuMemcpyHtoD(ints(1), source.data(), source.size()), CUDA_ERROR_INVALID_VALUE);
    }
    void bad_value() { EXPECT_EQ(cuStreamCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE); }
    void bad_handle() {
        EXPECT_NE(cuStreamSynchronize(reinterpret_cast<CUstream>(0x1234)), CUDA_SUCCESS);
    }
    void destroyed_handle() {
        const CUstream gone = stream();
        ASSERT_CUDA_OK(cuStreamDestroy(gone));
        EXPECT_NE(cuStreamSynchronize(gone), CUDA_SUCCESS);
    }

    // Virtual memory management.
    void bad_size() {
        CUmemGenericAllocationHandle handle = 0;
        const CUmemAllocationProp properties = on_device(0);
        EXPECT_EQ(cuMemCreate(&handle, 4096, &properties, 0), CUDA_ERROR_INVALID_VALUE);
    }
    void bad_offset() {
        const CUdeviceptr address = reserve(kGranule);
        EXPECT_EQ(cuMemMap(address, kGranule, kGranule, create(2 * kGranule), 0),
                  CUDA_ERROR_INVALID_VALUE);
    }
    void map_over_mapping() {
        const Mapping mapping;
        EXPECT_EQ(cuMemMap(mapping.address, mapping.bytes, 0, mapping.handle, 0),
                  CUDA_ERROR_INVALID_VALUE);
    }
    void not_mapped() { EXPECT_NE(cuMemUnmap(reserve(kGranule), kGranule), CUDA_SUCCESS); }
    void not_reserved() {
        EXPECT_NE(cuMemMap(CUdeviceptr{kGranule}, kGranule, 0, create(kGranule), 0), CUDA_SUCCESS);
    }
    void split_mapping() {
        const Mapping mapping(2 * kGranule);
        EXPECT_NE(cuMemUnmap(mapping.address, kGranule), CUDA_SUCCESS);
    }
    void reservation_mismatch() {
        EXPECT_NE(cuMemAddressFree(reserve(2 * kGranule), kGranule), CUDA_SUCCESS);
    }
    void free_mapped_reservation() {
        const Mapping mapping;
        EXPECT_NE(cuMemAddressFree(mapping.address, mapping.bytes), CUDA_SUCCESS);
    }
    void double_release() {
        const CUmemGenericAllocationHandle handle = create(kGranule);
        ASSERT_CUDA_OK(cuMemRelease(handle));
        EXPECT_NE(cuMemRelease(handle), CUDA_SUCCESS);
    }
    void not_exportable() {
        int file = -1;
        EXPECT_NE(cuMemExportToShareableHandle(&file, create(kGranule),
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                  CUDA_SUCCESS);
    }

   private:
    void set_no_access(const Mapping& mapping) {
        ASSERT_CUDA_OK(cuMemUnmap(mapping.address, mapping.bytes));
        ASSERT_CUDA_OK(cuMemMap(mapping.address, mapping.bytes, 0, mapping.handle, 0));
    }
};

const std::map<std::string, void (StrictnessTest::*)()> kProvoked{
    {"access-not-set", &StrictnessTest::access_not_set},
    {"api-in-host-function", &StrictnessTest::api_in_host_function},
    {"bad-handle", &StrictnessTest::bad_handle},
    {"bad-offset", &StrictnessTest::bad_offset},
    {"bad-size", &StrictnessTest::bad_size},
    {"bad-value", &StrictnessTest::bad_value},
    {"copy-across-registrations", &StrictnessTest::copy_across_registrations},
    {"copy-out-of-range", &StrictnessTest::copy_out_of_range},
    {"destroyed-handle", &StrictnessTest::destroyed_handle},
    {"double-free", &StrictnessTest::double_free},
    {"double-release", &StrictnessTest::double_release},
    {"event-not-recorded", &StrictnessTest::event_not_recorded},
    {"free-mapped-reservation", &StrictnessTest::free_mapped_reservation},
    {"free-under-work", &StrictnessTest::free_under_work},
    {"host-register-overlap", &StrictnessTest::host_register_overlap},
    {"illegal-during-capture", &StrictnessTest::illegal_during_capture},
    {"leak-at-exit", &StrictnessTest::leak_at_exit},
    {"map-over-mapping", &StrictnessTest::map_over_mapping},
    {"no-context", &StrictnessTest::no_context},
    {"not-an-allocation", &StrictnessTest::not_an_allocation},
    {"not-captured-whole", &StrictnessTest::not_captured_whole},
    {"not-exportable", &StrictnessTest::not_exportable},
    {"not-mapped", &StrictnessTest::not_mapped},
    {"not-reserved", &StrictnessTest::not_reserved},
    {"peer-not-enabled", &StrictnessTest::peer_not_enabled},
    {"read-only", &StrictnessTest::read_only},
    {"reservation-mismatch", &StrictnessTest::reservation_mismatch},
    {"split-mapping", &StrictnessTest::split_mapping},
    {"unload-under-work", &StrictnessTest::unload_under_work},
    {"unmap-under-work", &StrictnessTest::unmap_under_work},
    {"unmapped-access", &StrictnessTest::unmapped_access},
    {"unpooled-free", &StrictnessTest::unpooled_free},
    {"unregister-under-work", &StrictnessTest::unregister_under_work},
    {"wrong-device", &StrictnessTest::wrong_device},
};

TEST_F(StrictnessTest, ReportsEveryKindOfMisuse) {
    for (const auto& [name, provoke] : kProvoked) {
        start("leaks=0");
        frostline_emulator_clear_misuse();
        (this->*provoke)();
        EXPECT_THAT(reported_names(), ::testing::Contains(name));
        frostline_emulator_clear_misuse();
    }
}

TEST_F(StrictnessTest, KnowsNoKindThatIsNotProvokedHere) {
    std::vector<std::string> kinds;
    for (std::size_t i = 0; frostline_emulator_misuse_kind(i) != nullptr; ++i) {
        kinds.emplace_back(frostline_emulator_misuse_kind(i));
        EXPECT_NE(frostline_emulator_explain(kinds.back().c_str()), nullptr);
    }
    std::vector<std::string> provoked;
    for (const auto& [name, provoke] : kProvoked) provoked.push_back(name);
    EXPECT_EQ(kinds, provoked);
}

}  // namespace
}  // namespace frostline::emulator_test
