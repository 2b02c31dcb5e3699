// The trainer's device on a driver, which is the emulator: the same kernels give the same bits as
// when they are called directly, and what cannot be used is refused by name.
#include "bench/train/gpu.h"
#include "tests/train/model_fixture.h"

#include <string>

namespace frostline::train {
namespace {

class GpuTest : public ::testing::Test {
   protected:
    void SetUp() override {
        auto loaded = CudaDriver::load(FROSTLINE_EMULATOR);
        ASSERT_TRUE(loaded) << loaded.error().message();
        driver_ = std::make_unique<CudaDriver>(*loaded);
    }

    std::unique_ptr<CudaDriver> driver_;
};

TEST_F(GpuTest, TrainsBitByBitAsTheKernelsCalledDirectly) {
    constexpr int kSteps = 3;
    HostDevice host;
    PlainStore host_store(host);
    const auto expected = make_model(kSmallShape, host, {host_store, host_store});
    const std::vector<double> expected_losses = train_steps(*expected, kSmallShape, kSteps);

    const auto gpu = Gpu::create(*driver_, 0, FROSTLINE_TRAIN_MODULE);
    ASSERT_TRUE(gpu) << gpu.error().message();
    PlainStore store(**gpu);
    const auto model = make_model(kSmallShape, **gpu, {store, store});
    EXPECT_EQ(train_steps(*model, kSmallShape, kSteps), expected_losses);
    EXPECT_EQ(weights_of(*model), weights_of(*expected));
    EXPECT_EQ((*gpu)->label(), Label::emulated);
}

TEST_F(GpuTest, GivesBackAllMemory) {
    const auto gpu = Gpu::create(*driver_, 0, FROSTLINE_TRAIN_MODULE);
    ASSERT_TRUE(gpu) << gpu.error().message();
    const auto free_bytes = [&] {
        std::size_t free = 0;
        std::size_t total = 0;
        const auto read = (*gpu)->context()->run(
            [&] { return driver_->check("cuMemGetInfo", driver_->cuMemGetInfo(&free, &total)); });
        EXPECT_TRUE(read);
        return free;
    };
    const std::size_t before = free_bytes();
    {
        PlainStore store(**gpu);
        const auto model = make_model(kSmallShape, **gpu, {store, store});
        train_steps(*model, kSmallShape, 1);
        EXPECT_LT(free_bytes(), before);
    }
    EXPECT_EQ(free_bytes(), before);
}

TEST_F(GpuTest, RefusesWhatIsNoModuleOrNotThisOne) {
    const auto missing = Gpu::create(*driver_, 0, "no/such/module");
    ASSERT_FALSE(missing);
    EXPECT_NE(std::string(missing.error().message()).find("no/such/module"), std::string::npos);
    const auto another = Gpu::create(*driver_, 0, FROSTLINE_EMULATOR);
    ASSERT_FALSE(another);
    const auto device = Gpu::create(*driver_, 99, FROSTLINE_TRAIN_MODULE);
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error().code(), Errc::invalid_argument);
}

}  // namespace
}  // namespace frostline::train
