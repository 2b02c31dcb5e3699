// Products against the definition: both forms of the left factor, scale, bias, addend, batches, and
// what each causal mode must compute and must leave alone.
#include "tests/train/layer_fixture.h"

#include <tuple>

namespace frostline::train {
namespace {

using reference::Values;

struct Sizes {
    int rows;
    int columns;
    int depth;
};

class MatmulTest : public ::testing::TestWithParam<std::tuple<Sizes, bool>> {
   protected:
    static constexpr int kOuter = 2;
    static constexpr int kInner = 3;

    // Each matrix of the batch has its place between others, and room after each row.
    static constexpr std::int64_t kGap = 3;
    static std::int64_t row(int columns) { return columns + kGap; }
    static std::int64_t matrix(int rows, int columns) { return rows * row(columns); }

    int left_rows() const { return transposed_ ? sizes_.depth : sizes_.rows; }
    int left_columns() const { return transposed_ ? sizes_.rows : sizes_.depth; }

    template <class T>
    static auto batch(T* data, int rows, int columns) {
        const std::int64_t inner = matrix(rows, columns);
        if constexpr (std::is_const_v<T>) {
            return ConstMatrices{data, row(columns), kInner * inner, inner};
        } else {
            return Matrices{data, row(columns), kInner * inner, inner};
        }
    }

    double left_at(int which, int m, int k) const {
        const Sizes& s = sizes_;
        const std::int64_t at = which * matrix(left_rows(), left_columns());
        return left_[at + (transposed_ ? k * row(s.rows) + m : m * row(s.depth) + k)];
    }
    double right_at(int which, int k, int n) const {
        return right_[which * matrix(sizes_.depth, sizes_.columns) + k * row(sizes_.columns) + n];
    }

    // The product with everything that the arguments have, in place of `into`.
    Values expected(const Values& into, const MatmulArguments& a, bool causal_result) const {
        Values result = into;
        for (int which = 0; which < kOuter * kInner; ++which) {
            for (int m = 0; m < sizes_.rows; ++m) {
                for (int n = 0; n < sizes_.columns; ++n) {
                    if (causal_result && n > m) continue;
                    double sum = 0.0;
                    for (int k = 0; k < sizes_.depth; ++k) {
                        sum += left_at(which, m, k) * right_at(which, k, n);
                    }
                    const std::int64_t at =
                        which * matrix(sizes_.rows, sizes_.columns) + m * row(sizes_.columns) + n;
                    sum *= a.scale;
                    if (a.bias != nullptr) sum += bias_[n];
                    result[at] = a.add != nullptr ? sum + into[at] : sum;
                }
            }
        }
        return result;
    }

    MatmulArguments arguments(float* result) {
        return {.left = batch<const float>(tensors_.put(left_), left_rows(), left_columns()),
                .right = batch<const float>(tensors_.put(right_), sizes_.depth, sizes_.columns),
                .result = batch<float>(result, sizes_.rows, sizes_.columns),
                .bias = nullptr,
                .add = nullptr,
                .rows = sizes_.rows,
                .columns = sizes_.columns,
                .depth = sizes_.depth,
                .inner_count = kInner,
                .scale = 1.0F,
                .causal = Causal::none};
    }

    void launch(const MatmulArguments& a) {
        if (transposed_) {
            launch_.multiply_transposed(a, kOuter * kInner);
        } else {
            launch_.multiply(a, kOuter * kInner);
        }
        const auto status = launch_.status();
        ASSERT_TRUE(status) << status.error().message();
    }

    Values& left() { return left_; }
    const Sizes& sizes() const { return sizes_; }
    bool transposed() const { return transposed_; }

    HostDevice device_;
    Launches launch_{device_};
    Tensors tensors_{device_};

   private:
    Sizes sizes_ = std::get<0>(GetParam());
    bool transposed_ = std::get<1>(GetParam());

   protected:
    Values left_ =
        reference::random_values(kOuter * kInner * matrix(left_rows(), left_columns()), 1);
    Values right_ =
        reference::random_values(kOuter * kInner * matrix(sizes_.depth, sizes_.columns), 2);
    Values into_ =
        reference::random_values(kOuter * kInner * matrix(sizes_.rows, sizes_.columns), 3);
    Values bias_ = reference::random_values(sizes_.columns, 4);
};

TEST_P(MatmulTest, MatchesTheDefinitionAndWritesNothingElse) {
    float* result = tensors_.put(into_);
    MatmulArguments a = arguments(result);
    launch(a);
    expect_near(tensors_.get(result, into_.size()), expected(into_, a, false), "product");
}

TEST_P(MatmulTest, ScalesAndAddsBiasAndAddendInPlace) {
    float* result = tensors_.put(into_);
    MatmulArguments a = arguments(result);
    a.scale = 0.375F;
    a.bias = tensors_.put(bias_);
    a.add = result;
    launch(a);
    expect_near(tensors_.get(result, into_.size()), expected(into_, a, false), "product");
}

TEST_P(MatmulTest, CausalResultHasAllOfTheLowerTriangle) {
    if (sizes().rows != sizes().columns) return;
    float* result = tensors_.put(into_);
    MatmulArguments a = arguments(result);
    a.causal = Causal::result_is_lower;
    launch(a);
    const Values wanted = expected(into_, a, true);
    Values found = tensors_.get(result, into_.size());
    // Above the diagonal anything may be: compare as if it were right.
    for (std::size_t i = 0; i < found.size(); ++i) {
        const std::int64_t in_matrix =
            static_cast<std::int64_t>(i) % matrix(sizes().rows, sizes().columns);
        if (in_matrix % row(sizes().columns) > in_matrix / row(sizes().columns)) {
            found[i] = wanted[i];
        }
    }
    expect_near(found, wanted, "product");
}

TEST_P(MatmulTest, CausalLeftFactorIsNotReadWhereItIsZeroByTiles) {
    if (sizes().rows != sizes().depth) return;
    const std::int64_t size = sizes().rows;
    for (std::size_t i = 0; i < left().size(); ++i) {
        const std::int64_t in_matrix = static_cast<std::int64_t>(i) % matrix(size, size);
        const std::int64_t m = transposed() ? in_matrix % row(size) : in_matrix / row(size);
        const std::int64_t k = transposed() ? in_matrix / row(size) : in_matrix % row(size);
        const bool outside = transposed() ? k < m : k > m;
        if (outside) left()[i] = 0.0;
    }
    float* result = tensors_.put(into_);
    MatmulArguments a = arguments(result);
    a.causal = transposed() ? Causal::left_is_upper : Causal::left_is_lower;
    launch(a);
    expect_near(tensors_.get(result, into_.size()), expected(into_, a, false), "product");
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, MatmulTest,
    ::testing::Combine(::testing::Values(Sizes{1, 1, 1}, Sizes{4, 8, 3}, Sizes{5, 9, 7},
                                         Sizes{33, 130, 12}, Sizes{3, 7, 65}, Sizes{37, 37, 37},
                                         Sizes{16, 16, 16}, Sizes{13, 13, 4}, Sizes{11, 5, 11}),
                       ::testing::Bool()));

}  // namespace
}  // namespace frostline::train
