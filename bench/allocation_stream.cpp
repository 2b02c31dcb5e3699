// Reading and making streams.
#include "bench/allocation_stream.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <stdexcept>
#include <unordered_map>

namespace frostline::bench {
namespace {

constexpr unsigned kSteps = 3;

// Numbers blocks, and keeps count of what lives.
class StreamWriter {
   public:
    explicit StreamWriter(std::string name) { stream_.name = std::move(name); }

    void birth(std::uint64_t id, std::uint64_t size_bytes) {
        if (size_bytes == 0) throw std::runtime_error(fmt::format("block {} has no bytes", id));
        if (!living_.emplace(id, Living{stream_.blocks, size_bytes}).second) {
            throw std::runtime_error(fmt::format("block {} is born twice", id));
        }
        stream_.events.push_back({stream_.blocks++, size_bytes});
        live_bytes_ += size_bytes;
        stream_.peak_live_bytes = std::max(stream_.peak_live_bytes, live_bytes_);
    }
    void death(std::uint64_t id) {
        const auto found = living_.find(id);
        if (found == living_.end()) {
            throw std::runtime_error(fmt::format("block {} dies without living", id));
        }
        stream_.events.push_back({found->second.block, 0});
        live_bytes_ -= found->second.size_bytes;
        living_.erase(found);
    }
    AllocationStream take() { return std::move(stream_); }

   private:
    struct Living {
        std::uint32_t block = 0;
        std::uint64_t size_bytes = 0;
    };
    AllocationStream stream_;
    std::unordered_map<std::uint64_t, Living> living_;
    std::uint64_t live_bytes_ = 0;
};

// Calls `use` with the words of each line behind the first, which must be `head`.
template <class Use>
void for_each_line(const std::string& path, const std::string& head, Use&& use) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error(fmt::format("cannot read '{}'", path));
    std::string line;
    if (!std::getline(file, line) || line != head) {
        throw std::runtime_error(fmt::format("'{}' does not begin with '{}'", path, head));
    }
    for (std::size_t number = 2; std::getline(file, line); ++number) {
        std::istringstream words(line);
        std::string verb;
        if (!(words >> verb) || verb[0] == '#') continue;
        try {
            use(verb, words);
        } catch (const std::exception& error) {
            throw std::runtime_error(fmt::format("{}:{}: {}", path, number, error.what()));
        }
        if (words.fail()) {
            throw std::runtime_error(fmt::format("{}:{}: '{}' cannot be read", path, number, line));
        }
    }
}

std::string stem(const std::string& path) {
    return std::filesystem::path(path).stem().string();
}

struct TraceTensor {
    std::uint64_t size_bytes = 0;
    bool weight = false;
    std::size_t first = SIZE_MAX;  // kernel
    std::size_t last = 0;
};

struct TraceStep {
    std::map<std::uint64_t, TraceTensor> tensors;
    std::vector<std::vector<std::uint64_t>> kernels;  // the tensors of each, once
};

void note_kernel(TraceStep& step, const std::string& reads, const std::string& writes) {
    std::vector<std::uint64_t> used;
    for (const std::string& list : {reads, writes}) {
        std::istringstream ids(list == "-" ? "" : list);
        for (std::string id; std::getline(ids, id, ',');) {
            const std::uint64_t number = std::stoull(id);
            if (std::find(used.begin(), used.end(), number) != used.end()) continue;
            used.push_back(number);
            TraceTensor& tensor = step.tensors.at(number);
            tensor.first = std::min(tensor.first, step.kernels.size());
            tensor.last = step.kernels.size();
        }
    }
    step.kernels.push_back(std::move(used));
}

TraceStep read_trace(const std::string& path) {
    TraceStep step;
    for_each_line(path, "frostline-trace 1", [&](const std::string& verb, std::istream& words) {
        std::string id;
        std::string a;
        std::string b;
        std::string kind;
        if (verb == "tensor") {
            words >> id >> a >> kind;
            step.tensors[std::stoull(id)] = {std::stoull(a), kind == "weight"};
        } else if (verb == "kernel") {
            std::string name;
            words >> id >> a >> name >> b >> kind;
            note_kernel(step, b, kind);
        }
    });
    return step;
}

}  // namespace

AllocationStream load_allocations(const std::string& path) {
    StreamWriter writer(stem(path));
    for_each_line(path, "frostline-allocs 1", [&](const std::string& verb, std::istream& words) {
        std::uint64_t id = 0;
        std::uint64_t size_bytes = 0;
        if (verb == "a") {
            if (words >> id >> size_bytes) writer.birth(id, size_bytes);
        } else if (verb == "f") {
            if (words >> id) writer.death(id);
        } else if (verb != "step") {
            throw std::runtime_error(fmt::format("'{}' is none of a, f and step", verb));
        }
    });
    return writer.take();
}

AllocationStream load_trace(const std::string& path) {
    const TraceStep step = read_trace(path);
    StreamWriter writer(stem(path));
    for (const auto& [id, tensor] : step.tensors) {
        if (tensor.weight) writer.birth(id, tensor.size_bytes);
    }
    for (unsigned i = 0; i < kSteps; ++i) {
        for (std::size_t kernel = 0; kernel < step.kernels.size(); ++kernel) {
            for (const std::uint64_t id : step.kernels[kernel]) {
                const TraceTensor& tensor = step.tensors.at(id);
                if (!tensor.weight && tensor.first == kernel) writer.birth(id, tensor.size_bytes);
            }
            for (const std::uint64_t id : step.kernels[kernel]) {
                const TraceTensor& tensor = step.tensors.at(id);
                if (!tensor.weight && tensor.last == kernel) writer.death(id);
            }
        }
    }
    return writer.take();
}

AllocationStream generate_allocations() {
    constexpr std::uint64_t kLayers = 8;
    constexpr std::uint64_t kWidth = 512;
    constexpr std::uint64_t kBytes = 4;  // of a number
    StreamWriter writer("generated");
    std::uint64_t next = 0;
    const auto birth = [&](std::uint64_t size_bytes) {
        writer.birth(next, size_bytes);
        return next++;
    };
    for (std::uint64_t i = 0; i < kLayers; ++i) {
        for (const std::uint64_t rows : {3U, 1U, 4U, 4U}) birth(rows * kWidth * kWidth * kBytes);
        for (int bias = 0; bias < 6; ++bias) birth(kWidth * kBytes);
    }
    std::mt19937_64 random(1);  // NOLINT: the same in each run, so that figures can be compared
    for (int step = 0; step < 12; ++step) {
        const std::uint64_t tokens = (2 + random() % 3) * (65 + random() % 320);
        const std::uint64_t row = tokens * kWidth * kBytes;
        std::vector<std::uint64_t> saved;
        for (std::uint64_t i = 0; i < kLayers; ++i) {
            for (const std::uint64_t rows : {1U, 3U, 1U, 1U, 4U, 4U, 1U}) {
                const std::uint64_t scratch = birth(rows * row + 2 * tokens * kBytes);
                saved.push_back(birth(rows * row));
                saved.push_back(birth(2 * tokens * kBytes));
                writer.death(scratch);
            }
        }
        std::uint64_t gradient = birth(row);
        while (!saved.empty()) {
            const std::uint64_t next_gradient = birth(row);
            writer.death(gradient);
            writer.death(saved.back());
            saved.pop_back();
            gradient = next_gradient;
        }
        writer.death(gradient);
    }
    return writer.take();
}

AllocationStream repeat(const AllocationStream& stream, unsigned times) {
    StreamWriter writer(stream.name);
    std::vector<bool> living(stream.blocks);
    for (unsigned i = 0; i < times; ++i) {
        for (const AllocationEvent& event : stream.events) {
            living[event.block] = event.size_bytes != 0;
            event.size_bytes != 0 ? writer.birth(event.block, event.size_bytes)
                                  : writer.death(event.block);
        }
        for (std::uint32_t block = 0; block < stream.blocks; ++block) {
            if (living[block]) writer.death(block);
            living[block] = false;
        }
    }
    return writer.take();
}

}  // namespace frostline::bench
