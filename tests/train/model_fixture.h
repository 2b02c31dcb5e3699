// A small model on the host, with a text to learn.
#pragma once

#include "bench/train/model.h"
#include "bench/train/plain_store.h"
#include "tests/train/host_device.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace frostline::train {

/// No size is a multiple of a tile; two layers, so that gradients pass through a whole block.
constexpr ModelShape kSmallShape{.layers = 2, .width = 18, .heads = 3, .context = 13, .batch = 6};

inline std::string sample_text() {
    std::string text;
    for (int i = 0; i < 40; ++i) text += "the frost line lies lower in winter, higher in spring; ";
    return text;
}

inline TextBatches sample_batches(const ModelShape& shape) {
    return *TextBatches::create(sample_text(), shape, 5);
}

inline std::unique_ptr<Model> make_model(const ModelShape& shape, Device& device,
                                         const Stores& stores, std::uint64_t seed = 1) {
    auto model = Model::create(shape, seed, device, stores);
    EXPECT_TRUE(model) << model.error().message();
    return model ? std::move(*model) : nullptr;
}

inline std::vector<std::vector<float>> weights_of(Model& model) {
    std::vector<std::vector<float>> weights;
    for (ParameterGroup* group : model.groups()) {
        const auto found = model.download(group->weights(), group->size());
        EXPECT_TRUE(found);
        weights.push_back(found ? *found : std::vector<float>());
    }
    return weights;
}

/// The losses of the first steps.
inline std::vector<double> train_steps(Model& model, const ModelShape& shape, int steps,
                                       const OptimizerSettings& settings = {}) {
    const TextBatches batches = sample_batches(shape);
    std::vector<double> losses;
    for (int number = 1; number <= steps; ++number) {
        const auto loss = model.step(batches.at(number), settings, number);
        EXPECT_TRUE(loss) << loss.error().message();
        losses.push_back(loss ? *loss : 0.0);
    }
    return losses;
}

}  // namespace frostline::train
