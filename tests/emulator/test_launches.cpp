// Launches in all forms, their limits, and what a kernel that touches what it must not does.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "tests/emulator/kernel_fixture.h"

namespace frostline::emulator_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

using LaunchTest = KernelTest;

unsigned high_half(CUdeviceptr address) {
    return static_cast<unsigned>(address >> 32);
}
unsigned low_half(CUdeviceptr address) {
    return static_cast<unsigned>(address);
}

TEST_F(LaunchTest, RunsEveryThreadOfTheGrid) {
    CUdeviceptr counter = ints(2);
    void* parameters[] = {&counter};
    ASSERT_CUDA_OK(
        cuLaunchKernel(kernel("count_threads"), 2, 3, 4, 5, 6, 7, 0, nullptr, parameters, nullptr));
    EXPECT_THAT(read_ints(counter, 2), ElementsAre(2 * 3 * 4 * 5 * 6 * 7, 0));
}

TEST_F(LaunchTest, CopiesParametersAtTheCall) {
    const CUdeviceptr data = ints(4);
    KernelGate gate;
    const CUstream work = stream();
    ASSERT_CUDA_OK(launch(kernel("run_until_set"), 1, work, gate.flag()));
    CUdeviceptr address = data;
    int value = 3;
    int count = 4;
    void* parameters[] = {&address, &value, &count};
    ASSERT_CUDA_OK(cuLaunchKernel(kernel("fill"), 1, 1, 1, 4, 1, 1, 0, work, parameters, nullptr));
    address = 0;
    value = 9;
    count = 0;
    gate.open();
    ASSERT_CUDA_OK(cuStreamSynchronize(work));
    EXPECT_THAT(read_ints(data, 4), Each(3));
}

TEST_F(LaunchTest, TakesParametersOfAllSizes) {
    CUdeviceptr out = 0;
    ASSERT_CUDA_OK(cuMemAlloc(&out, 5 * sizeof(double)));
    ASSERT_CUDA_OK(
        launch(kernel("store_mixed"), 1, nullptr, out, char{1}, 2.5, short{-3}, 4.25f, 1LL << 40));
    std::array<double, 5> values{};
    ASSERT_CUDA_OK(cuMemcpyDtoH(values.data(), out, sizeof(values)));
    EXPECT_THAT(values, ElementsAre(1, 2.5, -3, 4.25, 1099511627776.0));
}

struct PackedFill {
    CUdeviceptr data;
    int value;
    int count;
};

TEST_F(LaunchTest, TakesParametersPackedByTheCaller) {
    PackedFill packed{ints(3), 8, 3};
    std::size_t bytes = sizeof(packed);
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    const auto launch_packed = [&](void** parameters) {
        return cuLaunchKernel(kernel("fill"), 1, 1, 1, 3, 1, 1, 0, nullptr, parameters, extra);
    };
    ASSERT_CUDA_OK(launch_packed(nullptr));
    EXPECT_THAT(read_ints(packed.data, 3), Each(8));
    void* both[] = {&packed.data, &packed.value, &packed.count};
    EXPECT_EQ(launch_packed(both), CUDA_ERROR_INVALID_VALUE);
    bytes = 12;
    EXPECT_EQ(launch_packed(nullptr), CUDA_ERROR_INVALID_VALUE);
    bytes = 32;
    EXPECT_EQ(launch_packed(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchTest, RefusesMissingParameters) {
    EXPECT_EQ(cuLaunchKernel(kernel("fill"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_CUDA_OK(
        cuLaunchKernel(kernel("do_nothing"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
}

TEST_F(LaunchTest, RefusesShapesThatNoDeviceHas) {
    const CUfunction nothing = kernel("do_nothing");
    const auto shape = [&](std::array<unsigned, 6> s, unsigned shared_bytes = 0) {
        return cuLaunchKernel(nothing, s[0], s[1], s[2], s[3], s[4], s[5], shared_bytes, nullptr,
                              nullptr, nullptr);
    };
    EXPECT_CUDA_OK(shape({1, 1, 1, 1024, 1, 1}));
    for (const std::array<unsigned, 6>& wrong : {std::array<unsigned, 6>{0, 1, 1, 1, 1, 1},
                                                 {1, 1, 1, 0, 1, 1},
                                                 {1, 1, 1, 1025, 1, 1},
                                                 {1, 1, 1, 32, 33, 1},
                                                 {1, 1, 1, 1, 1, 65},
                                                 {1, 65536, 1, 1, 1, 1}}) {
        EXPECT_EQ(shape(wrong), CUDA_ERROR_INVALID_VALUE);
    }
    EXPECT_EQ(shape({1, 1, 1, 1, 1, 1}, 49153), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CUDA_OK(
        cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
    EXPECT_CUDA_OK(shape({1, 1, 1, 1, 1, 1}, 49153));
}

TEST_F(LaunchTest, ACooperativeGridHasToFitAtOnce) {
    const CUfunction nothing = kernel("do_nothing");
    EXPECT_CUDA_OK(cuLaunchCooperativeKernel(nothing, 16, 1, 1, 1024, 1, 1, 0, nullptr, nullptr));
    EXPECT_EQ(cuLaunchCooperativeKernel(nothing, 265, 1, 1, 1024, 1, 1, 0, nullptr, nullptr),
              CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

TEST_F(LaunchTest, AttributesAreCheckedOrRefusedByName) {
    CUlaunchAttribute attribute{};
    CUlaunchConfig config{};
    config.gridDimX = 6;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    const auto launch_with = [&](CUlaunchAttributeID id) {
        attribute.id = id;
        return cuLaunchKernelEx(&config, kernel("do_nothing"), nullptr, nullptr);
    };
    attribute.value.priority = 0;
    EXPECT_CUDA_OK(launch_with(CU_LAUNCH_ATTRIBUTE_PRIORITY));
    attribute.value.clusterDim = {2, 1, 1};
    EXPECT_CUDA_OK(launch_with(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION));
    attribute.value.clusterDim = {4, 1, 1};
    EXPECT_EQ(launch_with(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    EXPECT_EQ(launch_with(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(cuLaunchKernelEx(nullptr, kernel("do_nothing"), nullptr, nullptr),
              CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchTest, AKernelIsOfOneDevice) {
    start("devices=2,leaks=0");
    CUcontext second = nullptr;
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&second, 1));
    const CUfunction nothing = kernel("do_nothing");
    const CUstream first_stream = stream();
    ASSERT_CUDA_OK(cuCtxSetCurrent(second));
    EXPECT_EQ(launch(nothing, 1, nullptr), CUDA_ERROR_INVALID_HANDLE);
    expect_misuse({"wrong-device"});
    CUmodule module = nullptr;
    ASSERT_CUDA_OK(cuModuleLoad(&module, FROSTLINE_EMULATOR_KERNELS));
    CUfunction own = nullptr;
    ASSERT_CUDA_OK(cuModuleGetFunction(&own, module, "do_nothing"));
    EXPECT_CUDA_OK(launch(own, 1, nullptr));
    EXPECT_EQ(launch(own, 1, first_stream), CUDA_ERROR_INVALID_HANDLE);
    expect_misuse({"wrong-device"});
    ASSERT_CUDA_OK(cuCtxSynchronize());
}

TEST_F(LaunchTest, KernelsAndCopiesOfTwoStreamsOverlap) {
    const CUstream computing = stream();
    const CUstream copying = stream();
    KernelGate gate;
    KernelGate source;
    const CUdeviceptr target = ints(1);
    ASSERT_CUDA_OK(launch(kernel("run_until_set"), 1, computing, gate.flag()));
    // The copy ends while the kernel runs, because only then the kernel may end.
    ASSERT_CUDA_OK(cuMemcpyHtoDAsync(target, source.flag(), sizeof(int), copying));
    ASSERT_CUDA_OK(cuStreamSynchronize(copying));
    EXPECT_EQ(cuStreamQuery(computing), CUDA_ERROR_NOT_READY);
    gate.open();
    ASSERT_CUDA_OK(cuStreamSynchronize(computing));
    std::array<frostline_emulator_operation, 64> timeline{};
    const std::size_t count =
        std::min(frostline_emulator_timeline(timeline.data(), timeline.size()), timeline.size());
    auto* const end = timeline.data() + count;
    const auto of_kind = [&](int kind) {
        return std::find_if(timeline.data(), end, [&](const auto& o) { return o.kind == kind; });
    };
    const auto* const kernel_run = of_kind(FROSTLINE_EMULATOR_KERNEL);
    const auto* const copy = of_kind(FROSTLINE_EMULATOR_COPY_H2D);
    ASSERT_NE(kernel_run, end);
    ASSERT_NE(copy, end);
    EXPECT_LT(copy->end_ns, kernel_run->end_ns);
    EXPECT_LE(kernel_run->start_ns, kernel_run->end_ns);
}

class BadAccessTest : public KernelTest {
   protected:
    // After an illegal access nothing works in the context any more.
    void expect_broken(const std::string& name) {
        EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
        EXPECT_EQ(launch(nothing_, 1, nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
        expect_misuse({name});
    }
    void SetUp() override {
        KernelTest::SetUp();
        nothing_ = kernel("do_nothing");
    }
    CUfunction nothing_ = nullptr;
};

TEST_F(BadAccessTest, ReservedButUnmapped) {
    Mapping mapping;
    mapping.unmap();
    ASSERT_CUDA_OK(launch(kernel("write_at"), 1, nullptr, high_half(mapping.address),
                          low_half(mapping.address), 1));
    expect_broken("unmapped-access");
}

TEST_F(BadAccessTest, ReportNamesTheKernelAndTheAddress) {
    Mapping mapping;
    mapping.unmap();
    const CUdeviceptr address = mapping.address + 64;
    ASSERT_CUDA_OK(
        launch(kernel("write_at"), 1, nullptr, high_half(address), low_half(address), 1));
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    ASSERT_EQ(frostline_emulator_misuse_count(), 1u);
    const std::string report = frostline_emulator_misuse(0);
    EXPECT_THAT(report, ::testing::HasSubstr("kernel write_at"));
    EXPECT_THAT(report, ::testing::HasSubstr("reserved"));
    char text[32];
    std::snprintf(text, sizeof(text), "0x%llx", address);
    EXPECT_THAT(report, ::testing::HasSubstr(text));
    frostline_emulator_clear_misuse();
}

TEST_F(BadAccessTest, AccessWasNotSet) {
    Mapping mapping;
    mapping.unmap();
    ASSERT_CUDA_OK(cuMemMap(mapping.address, mapping.bytes, 0, mapping.handle, 0));
    ASSERT_CUDA_OK(launch(kernel("write_at"), 1, nullptr, high_half(mapping.address),
                          low_half(mapping.address), 1));
    expect_broken("access-not-set");
}

TEST_F(BadAccessTest, WriteToMemoryForReading) {
    Mapping mapping;
    mapping.allow(CU_MEM_ACCESS_FLAGS_PROT_READ);
    const CUdeviceptr out = ints(1);
    ASSERT_CUDA_OK(launch(kernel("read_at"), 1, nullptr, out, high_half(mapping.address),
                          low_half(mapping.address)));
    ASSERT_CUDA_OK(cuCtxSynchronize());
    ASSERT_CUDA_OK(fill(mapping.address, 1, 1, nullptr));
    expect_broken("read-only");
}

TEST_F(BadAccessTest, FreedMemory) {
    const CUdeviceptr freed = ints(1);
    ASSERT_CUDA_OK(cuMemFree(freed));
    ASSERT_CUDA_OK(launch(kernel("write_at"), 1, nullptr, high_half(freed), low_half(freed), 1));
    expect_broken("unmapped-access");
}

TEST_F(BadAccessTest, PastTheEnd) {
    const CUdeviceptr data = ints(1024);
    ASSERT_CUDA_OK(launch(kernel("fill"), 1024, nullptr, data + 4096, 1, 1024));
    expect_broken("unmapped-access");
}

TEST_F(BadAccessTest, NullPointer) {
    ASSERT_CUDA_OK(launch(kernel("fill"), 1, nullptr, CUdeviceptr{0}, 1, 1));
    expect_broken("unmapped-access");
}

TEST_F(BadAccessTest, PlainHostMemory) {
    const auto plain = std::make_unique<int>(0);
    ASSERT_CUDA_OK(launch(kernel("fill"), 1, nullptr, plain.get(), 1, 1));
    expect_broken("unmapped-access");
    EXPECT_EQ(*plain, 0);
}

TEST_F(BadAccessTest, AnotherDevicesMemory) {
    start("devices=2,leaks=0");
    const CUdeviceptr data = ints(1);
    CUcontext second = nullptr;
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&second, 1));
    ASSERT_CUDA_OK(cuCtxSetCurrent(second));
    ASSERT_CUDA_OK(cuModuleLoad(&module_, FROSTLINE_EMULATOR_KERNELS));
    ASSERT_CUDA_OK(fill(data, 1, 1, nullptr));
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_misuse({"peer-not-enabled"});
}

TEST_F(BadAccessTest, UnmappingUnderAKernelIsReportedAndWaits) {
    Mapping mapping;
    const CUstream work = stream();
    under_work(
        work, [&] { EXPECT_CUDA_OK(fill(mapping.address, 1, 8, work)); },
        [&] {
            mapping.unmap();
            EXPECT_CUDA_OK(cuStreamQuery(work));
        });
    expect_misuse({"unmap-under-work"});
}

TEST_F(BadAccessTest, AStructuresPointerCountsAsTouched) {
    struct {
        CUdeviceptr data;
        int count;
    } span{ints(8), 8};
    const CUstream work = stream();
    under_work(
        work, [&] { EXPECT_CUDA_OK(launch(kernel("fill_span"), 8, work, span, 4)); },
        [&] { EXPECT_CUDA_OK(cuMemFree(span.data)); });
    expect_misuse({"free-under-work"});
}

}  // namespace
}  // namespace frostline::emulator_test
