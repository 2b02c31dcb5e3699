// What a test of single layers needs: a device, a workspace and tensors, and comparisons.
#pragma once

#include "bench/train/layers.h"
#include "bench/train/plain_store.h"
#include "tests/train/host_device.h"
#include "tests/train/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace frostline::train {

/// Shapes none of whose sizes is a multiple of a tile, a group or a chunk, one whose sizes all
/// are, and the smallest.
inline std::vector<ModelShape> test_shapes() {
    return {{.layers = 2, .width = 21, .heads = 3, .context = 11, .batch = 7},
            {.layers = 1, .width = 16, .heads = 2, .context = 16, .batch = 8},
            {.layers = 1, .width = 10, .heads = 1, .context = 37, .batch = 2},
            {.layers = 1, .width = 1, .heads = 1, .context = 1, .batch = 1}};
}

/// Floats of one device.
class Tensors {
   public:
    explicit Tensors(Device& device) : device_(device), buffers_(device) {}

    float* make(std::size_t count) {
        const auto made = buffers_.allocate<float>(count);
        EXPECT_TRUE(made) << made.error().message();
        return made ? *made : nullptr;
    }
    float* put(const reference::Values& values) {
        float* place = make(values.size());
        write(place, values);
        return place;
    }
    void write(float* place, const reference::Values& values) {
        const std::vector<float> floats(values.begin(), values.end());
        EXPECT_TRUE(device_.upload(address_of(place), std::as_bytes(std::span(floats))));
    }
    reference::Values get(const float* place, std::size_t count) {
        std::vector<float> floats(count);
        EXPECT_TRUE(device_.download(std::as_writable_bytes(std::span(floats)), address_of(place)));
        return {floats.begin(), floats.end()};
    }
    std::int32_t* put(const std::vector<std::int32_t>& values) {
        const auto made = buffers_.allocate<std::int32_t>(values.size());
        EXPECT_TRUE(made);
        EXPECT_TRUE(device_.upload(address_of(*made), std::as_bytes(std::span(values))));
        return *made;
    }

   private:
    Device& device_;
    DeviceBuffers buffers_;
};

/// Float arithmetic differs from double's by its rounding: 6e-8 of the terms for each operation,
/// of which a sum here has at most some hundred. 2e-5 of the largest value is above that, and far
/// below what a wrong factor or a missing term makes.
constexpr double kTolerance = 2e-5;

inline void expect_near(const reference::Values& found, const reference::Values& expected,
                        const std::string& what, double tolerance = kTolerance) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    double largest = 1e-3;
    for (const double value : expected) largest = std::max(largest, std::fabs(value));
    for (std::size_t i = 0; i < found.size(); ++i) {
        // Negated, so that a NaN fails.
        if (!(std::fabs(found[i] - expected[i]) <= tolerance * largest)) {
            FAIL() << what << "[" << i << "] is " << found[i] << ", not " << expected[i]
                   << " (largest " << largest << ")";
        }
    }
}

/// Compares a gradient with central differences of f, which reads x.
inline void expect_gradient(const reference::Values& found, reference::Values& x,
                            const std::function<double()>& f, const std::string& what,
                            double tolerance = kTolerance) {
    ASSERT_EQ(found.size(), x.size()) << what;
    reference::Values some;
    reference::Values expected;
    for (const std::size_t index : reference::some_indices(x.size(), 40)) {
        some.push_back(found[index]);
        expected.push_back(reference::central_difference(x, index, f));
    }
    expect_near(some, expected, what, tolerance);
}

class LayerTest : public ::testing::TestWithParam<ModelShape> {
   protected:
    void SetUp() override {
        const auto made = Workspace::create(shape_, buffers_);
        ASSERT_TRUE(made) << made.error().message();
        work_ = *made;
    }
    Pass pass() { return {shape_, launch_, work_, store_}; }
    reference::Values random(std::int64_t count) {
        return reference::random_values(count, ++seed_);
    }
    void expect_launched() {
        const auto status = launch_.status();
        EXPECT_TRUE(status) << status.error().message();
    }

    ModelShape shape_ = GetParam();
    HostDevice device_;
    DeviceBuffers buffers_{device_};
    PlainStore store_{device_};
    Launches launch_{device_};
    Tensors tensors_{device_};
    Workspace work_{};

   private:
    std::uint64_t seed_ = 0;
};

}  // namespace frostline::train
