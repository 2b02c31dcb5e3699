// Sequences start anywhere in the text. Rows are listed by token with a counting sort, which keeps
// them in order.
#include "bench/train/text_batches.h"

#include "bench/train/counter_random.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

namespace frostline::train {
namespace {

void list_rows(Batch& batch) {
    batch.starts.assign(ModelShape::kVocabulary + 1, 0);
    for (const std::int32_t token : batch.tokens) ++batch.starts[token + 1];
    for (int token = 0; token < ModelShape::kVocabulary; ++token) {
        batch.starts[token + 1] += batch.starts[token];
    }
    std::vector<std::int32_t> next(batch.starts.begin(), batch.starts.end() - 1);
    batch.sorted_rows.resize(batch.tokens.size());
    for (std::size_t row = 0; row < batch.tokens.size(); ++row) {
        batch.sorted_rows[next[batch.tokens[row]]++] = static_cast<std::int32_t>(row);
    }
}

}  // namespace

Result<TextBatches> TextBatches::open(const std::string& path, const ModelShape& shape,
                                      std::uint64_t seed) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
        return Error(Errc::invalid_argument, 0, "the text {} is a folder; name a file", path);
    }
    std::ifstream file(path, std::ios::binary);
    if (!file) return system_error(errno, "cannot open the text {}", path);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    if (file.bad()) return Error(Errc::io, 0, "cannot read the text {}", path);
    return create(std::move(text), shape, seed);
}

Result<TextBatches> TextBatches::create(std::string text, const ModelShape& shape,
                                        std::uint64_t seed) {
    if (text.size() < static_cast<std::size_t>(shape.context) + 1) {
        return Error(Errc::invalid_argument, 0,
                     "the text has {} bytes; a context of {} needs at least {}", text.size(),
                     shape.context, shape.context + 1);
    }
    return TextBatches(std::move(text), shape, seed);
}

Batch TextBatches::at(int step) const {
    Batch batch;
    const std::size_t places = text_.size() - shape_.context;
    for (int sequence = 0; sequence < shape_.batch; ++sequence) {
        const std::uint64_t index = static_cast<std::uint64_t>(step) * shape_.batch + sequence;
        const std::size_t start = random_bits(seed_, index) % places;
        for (int i = 0; i < shape_.context; ++i) {
            batch.tokens.push_back(static_cast<unsigned char>(text_[start + i]));
            batch.targets.push_back(static_cast<unsigned char>(text_[start + i + 1]));
        }
    }
    list_rows(batch);
    return batch;
}

}  // namespace frostline::train
