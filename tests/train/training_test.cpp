// Training as a whole: it learns, it is the same every time and with every store, and it needs the
// memory that the plan says.
#include "tests/train/model_fixture.h"
#include "tests/train/moving_store.h"

#include <algorithm>

namespace frostline::train {
namespace {

struct TrainedRun {
    std::vector<double> losses;
    std::vector<std::vector<float>> weights;
    bool operator==(const TrainedRun&) const = default;
};

TrainedRun plain_run(int steps, std::uint64_t seed = 1) {
    HostDevice device;
    PlainStore store(device);
    const auto model = make_model(kSmallShape, device, {store, store}, seed);
    TrainedRun run;
    run.losses = train_steps(*model, kSmallShape, steps);
    run.weights = weights_of(*model);
    return run;
}

TEST(Training, LossesFall) {
    HostDevice device;
    PlainStore store(device);
    const auto model = make_model(kSmallShape, device, {store, store});
    const std::vector<double> losses =
        train_steps(*model, kSmallShape, 60, {.learning_rate = 1e-2F});
    // A model that knows nothing has a loss near the logarithm of 256.
    EXPECT_NEAR(losses.front(), 5.545, 0.2);
    EXPECT_LT(losses.back(), 0.5 * losses.front());
}

TEST(Training, TwoRunsAreBitIdentical) {
    const TrainedRun run = plain_run(5);
    EXPECT_EQ(run, plain_run(5));
    EXPECT_NE(run.losses, plain_run(5, 2).losses) << "the seed has no effect";
}

TEST(Training, MovingActivationsChangesNoBit) {
    HostDevice device;
    PlainStore states(device);
    MovingStore activations(device);
    const auto model = make_model(kSmallShape, device, {activations, states});
    TrainedRun run;
    run.losses = train_steps(*model, kSmallShape, 5);
    run.weights = weights_of(*model);
    EXPECT_EQ(run, plain_run(5));
}

TEST(Training, MovingGradientsAndMomentsTooChangesNoBit) {
    HostDevice device;
    MovingStore store(device);
    const auto model = make_model(kSmallShape, device, {store, store});
    TrainedRun run;
    run.losses = train_steps(*model, kSmallShape, 5);
    run.weights = weights_of(*model);
    EXPECT_EQ(run, plain_run(5));
}

TEST(Training, ActivationsAreUsedInReverseAndAnnounced) {
    HostDevice device;
    PlainStore states(device);
    MovingStore activations(device);
    const auto model = make_model(kSmallShape, device, {activations, states});
    train_steps(*model, kSmallShape, 1);
    std::vector<ActivationStore::Handle> reversed(activations.allocated.rbegin(),
                                                  activations.allocated.rend());
    EXPECT_EQ(activations.used, reversed);
    // All but the two of the head, which are used right after they were made.
    EXPECT_EQ(activations.hinted,
              std::vector(activations.used.begin() + 2, activations.used.end()));
}

TEST(Training, PlanIsWhatARunAllocates) {
    for (const ModelShape& shape :
         {kSmallShape, ModelShape{.layers = 1, .width = 8, .heads = 1, .context = 8, .batch = 1}}) {
        HostDevice device;
        PlainStore activations(device);
        PlainStore states(device);
        const auto model = make_model(shape, device, {activations, states});
        train_steps(*model, shape, 2);
        const Footprint plan = footprint_of(shape);
        EXPECT_EQ(model->resident_bytes(),
                  static_cast<std::uint64_t>(plan.weights_bytes + plan.workspace_bytes));
        EXPECT_EQ(activations.peak_device_bytes(),
                  static_cast<std::uint64_t>(plan.activations_bytes));
        EXPECT_EQ(states.peak_device_bytes(),
                  static_cast<std::uint64_t>(plan.gradients_bytes + plan.optimizer_bytes));
        EXPECT_EQ(device.held_bytes(), static_cast<std::uint64_t>(plan.total_bytes()));
    }
}

TEST(Training, ActivationsAreMostOfTheDefaultShape) {
    const Footprint plan = footprint_of(ModelShape{});
    EXPECT_GT(plan.activations_bytes, plan.total_bytes() / 2);
    EXPECT_GT(plan.optimizer_bytes, plan.weights_bytes);
}

TEST(Training, AFailedLaunchIsReportedAndLeavesNothingBehind) {
    HostDevice device;
    const Batch batch = sample_batches(kSmallShape).at(1);
    int launches = 0;
    {
        PlainStore store(device);
        const auto model = make_model(kSmallShape, device, {store, store});
        ASSERT_TRUE(model->step(batch, {}, 1));
        launches = device.launches();
    }
    EXPECT_EQ(device.held_bytes(), 0U);
    for (int before = 0; before < launches; before += 7) {
        {
            MovingStore store(device);
            const auto model = make_model(kSmallShape, device, {store, store});
            device.fail_after(before);
            const auto loss = model->step(batch, {}, 1);
            ASSERT_FALSE(loss) << "after " << before;
            EXPECT_EQ(loss.error().code(), Errc::io);
            device.fail_after(-1);
        }
        ASSERT_EQ(device.held_bytes(), 0U) << "after " << before;
    }
}

TEST(Training, ADeviceThatIsTooSmallIsReportedAndLeavesNothingBehind) {
    const std::int64_t total = footprint_of(kSmallShape).total_bytes();
    const Batch batch = sample_batches(kSmallShape).at(1);
    HostDevice device;
    for (int eighths = 0; eighths < 8; ++eighths) {
        device.set_capacity(total * eighths / 8);
        {
            PlainStore store(device);
            auto model = Model::create(kSmallShape, 1, device, {store, store});
            const auto failed = model ? (*model)->step(batch, {}, 1) : model.error();
            ASSERT_FALSE(failed) << eighths;
            EXPECT_EQ(failed.error().code(), Errc::no_space);
        }
        ASSERT_EQ(device.held_bytes(), 0U) << eighths;
    }
}

TEST(ModelShapes, WhatCannotBeIsRefusedByName) {
    const auto refused = [](ModelShape shape, const char* word) {
        const auto checked = shape.check();
        ASSERT_FALSE(checked) << word;
        EXPECT_EQ(checked.error().code(), Errc::invalid_argument);
        EXPECT_NE(std::string(checked.error().message()).find(word), std::string::npos)
            << checked.error().message();
    };
    EXPECT_TRUE(ModelShape{}.check());
    refused({.layers = 0}, "layers");
    refused({.width = -4}, "width");
    refused({.width = 10, .heads = 3}, "multiple");
    refused({.context = 0}, "context");
    refused({.batch = 2000}, "batch");
    refused({.context = 8192, .batch = 1000}, "tokens");
    refused({.width = 16384, .context = 8192, .batch = 64}, "more than");
    refused({.width = 256, .heads = 256, .context = 1, .batch = 1000}, "heads");
}

}  // namespace
}  // namespace frostline::train
