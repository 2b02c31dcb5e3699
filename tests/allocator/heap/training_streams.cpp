// The generators follow the order in which a framework allocates: weights, then for each step the
// activations of the forward pass with short-lived temporaries between them, which die in reverse
// while gradients are born, and at the first step's end the optimizer's states.
#include "tests/allocator/heap/training_streams.h"

#include "tests/tiers/seed.h"

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>

namespace frostline {
namespace {

class Writer {
   public:
    std::uint64_t birth(std::uint64_t size_bytes) {
        stream.push_back({next_, size_bytes});
        return next_++;
    }
    void death(std::uint64_t block) { stream.push_back({block, 0}); }
    /// Born and dead at once, as an operator's scratch memory is.
    void scratch(std::uint64_t size_bytes) { death(birth(size_bytes)); }
    TrainingStream stream;

   private:
    std::uint64_t next_ = 1;
};

struct Layer {
    std::vector<std::uint64_t> weights;      // bytes of each
    std::vector<std::uint64_t> activations;  // bytes of what it saves, in order
    std::uint64_t scratch_bytes = 0;
};

// One step over the layers: forward, backward, optimizer.
class Training {
   public:
    void begin(const std::vector<Layer>& layers) {
        for (const Layer& layer : layers) {
            for (const std::uint64_t size : layer.weights) writer.birth(size);
        }
    }
    void step(const std::vector<Layer>& layers) {
        std::vector<std::vector<std::uint64_t>> saved;
        for (const Layer& layer : layers) {
            saved.emplace_back();
            for (const std::uint64_t size : layer.activations) {
                if (layer.scratch_bytes != 0) writer.scratch(layer.scratch_bytes);
                saved.back().push_back(writer.birth(size));
            }
        }
        std::vector<std::pair<std::uint64_t, std::uint64_t>> gradients;
        std::uint64_t flowing = writer.birth(layers.back().activations.back());
        for (std::size_t i = layers.size(); i-- > 0;) {
            const Layer& layer = layers[i];
            for (std::size_t k = saved[i].size(); k-- > 0;) {
                const std::uint64_t next = writer.birth(layer.activations[k]);
                if (layer.scratch_bytes != 0) writer.scratch(layer.scratch_bytes);
                writer.death(flowing);
                writer.death(saved[i][k]);
                flowing = next;
            }
            for (const std::uint64_t size : layer.weights) {
                gradients.emplace_back(writer.birth(size), size);
            }
        }
        writer.death(flowing);
        for (const auto& [gradient, size] : gradients) {
            if (!has_states_) writer.birth(size), writer.birth(size);
            writer.scratch(size);
            writer.scratch(size);
        }
        has_states_ = true;
        for (const auto& [gradient, size] : gradients) writer.death(gradient);
    }
    Writer writer;

   private:
    bool has_states_ = false;
};

constexpr int kSteps = 10;
constexpr std::uint64_t kFloat = 4;

}  // namespace

TrainingStream read_allocations(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::string line;
    TrainingStream stream;
    if (!std::getline(in, line) || line != "frostline-allocs 1") return {};
    while (std::getline(in, line)) {
        std::istringstream words(line);
        std::string verb;
        BirthOrDeath event;
        words >> verb >> event.block;
        if (verb == "a") words >> event.size_bytes;
        if (verb == "a" || verb == "f") stream.push_back(event);
    }
    return stream;
}

TrainingStream read_trace(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::string line;
    if (!std::getline(in, line) || line != "frostline-trace 1") return {};
    std::map<std::uint64_t, std::uint64_t> sizes;
    std::vector<std::uint64_t> weights;
    std::vector<std::vector<std::uint64_t>> kernels;  // what each touches
    while (std::getline(in, line)) {
        std::istringstream words(line);
        std::string verb;
        std::uint64_t number = 0;
        words >> verb >> number;
        if (verb == "tensor") {
            std::string kind;
            words >> sizes[number] >> kind;
            if (kind == "weight") weights.push_back(number);
        } else if (verb == "kernel") {
            std::string skipped;
            words >> skipped >> skipped;  // how long it runs, and its name
            kernels.emplace_back();
            for (std::string list; words >> list;) {
                std::istringstream numbers(list);
                for (std::string each; std::getline(numbers, each, ',');) {
                    if (each != "-") kernels.back().push_back(std::stoull(each));
                }
            }
        }
    }
    std::map<std::uint64_t, std::size_t> last;
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        for (const std::uint64_t tensor : kernels[i]) last[tensor] = i;
    }
    TrainingStream stream;
    for (const std::uint64_t weight : weights) {
        stream.push_back({weight, sizes[weight]});
        last.erase(weight);
    }
    for (int step = 0; step < 3; ++step) {
        std::map<std::uint64_t, bool> born;
        for (std::size_t i = 0; i < kernels.size(); ++i) {
            for (const std::uint64_t tensor : kernels[i]) {
                if (!last.contains(tensor) || std::exchange(born[tensor], true)) continue;
                stream.push_back({tensor, sizes[tensor]});
            }
            for (const std::uint64_t tensor : kernels[i]) {
                if (!last.contains(tensor) || last[tensor] != i) continue;
                if (std::exchange(born[tensor], false)) stream.push_back({tensor, 0});
                born[tensor] = true;  // touched twice by its last kernel
            }
        }
    }
    return stream;
}

TrainingStream make_transformer_steps(std::mt19937_64& random) {
    const std::uint64_t width = 64 * between(random, 4, 12);
    const std::uint64_t depth = between(random, 4, 8);
    const std::uint64_t words = between(random, 8000, 20000);
    const auto layers_for = [&](std::uint64_t batch, std::uint64_t length) {
        const std::uint64_t row = batch * length * width * kFloat;
        const std::uint64_t scores = batch * (width / 64) * length * length * kFloat;
        std::vector<Layer> layers{{{words * width * kFloat, 1024 * width * kFloat}, {row}, 0}};
        for (std::uint64_t i = 0; i < depth; ++i) {
            layers.push_back({{width * kFloat, width * kFloat, 3 * width * width * kFloat,
                               3 * width * kFloat, width * width * kFloat, width * kFloat},
                              {row, batch * length * kFloat, 3 * row, scores, row},
                              scores});
            layers.push_back({{width * kFloat, width * kFloat, 4 * width * width * kFloat,
                               4 * width * kFloat, 4 * width * width * kFloat, width * kFloat},
                              {row, batch * length * kFloat, 4 * row, 4 * row, row},
                              row});
        }
        layers.push_back({{}, {batch * length * words * kFloat}, batch * length * words * kFloat});
        return layers;
    };
    Training training;
    training.begin(layers_for(1, 1));
    for (int step = 0; step < kSteps; ++step) {
        training.step(layers_for(between(random, 2, 4), between(random, 65, 384)));
    }
    return std::move(training.writer.stream);
}

TrainingStream make_unet_steps(std::mt19937_64& random) {
    const std::uint64_t width = 16 * between(random, 2, 5);
    const auto layers_for = [&](std::uint64_t batch) {
        std::vector<Layer> layers;
        // Down to an eighth of the size and up again.
        for (const std::uint64_t level : {0, 1, 2, 3, 3, 2, 1, 0}) {
            const std::uint64_t channels = width << level;
            const std::uint64_t side = std::uint64_t{64} >> level;
            const std::uint64_t image = batch * channels * side * side * kFloat;
            for (int block = 0; block < 2; ++block) {
                layers.push_back({{9 * channels * channels * kFloat, channels * kFloat,
                                   channels * kFloat, channels * kFloat},
                                  {image, image, batch * 8 * kFloat * 2, image},
                                  image});
            }
        }
        return layers;
    };
    Training training;
    training.begin(layers_for(1));
    for (int step = 0; step < kSteps; ++step) training.step(layers_for(between(random, 2, 8)));
    return std::move(training.writer.stream);
}

}  // namespace frostline
