// The streams of a program that uses several at once, and the order that such a program owes to the
// memory that it shares between them: whoever writes waits for all that used it, whoever reads for
// who wrote it.
#pragma once

#include "tests/tiers/emulated_gpu.h"
#include "tiers/cuda_stream.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace frostline {

/// Which streams have used some memory since it was last known to be idle.
struct StreamUse {
    static constexpr std::size_t kNobody = SIZE_MAX;
    std::size_t writer = kNobody;
    unsigned readers = 0;  // a bit for each
};

/// Streams of two devices, by number: the first ones are of device 0, number 0 being that device's
/// default stream. For one thread.
class ProgramStreams {
   public:
    static constexpr std::size_t kOfEach = 3;
    static constexpr std::size_t kAll = 2 * kOfEach;

    explicit ProgramStreams(const Emulator& emulator)
        : contexts_{emulator.context(0), emulator.context(1)} {
        for (std::size_t i = 1; i < kAll; ++i) {
            auto made = CudaStream::create(contexts_[i / kOfEach]);
            EXPECT_TRUE(made.has_value());
            streams_.push_back(*std::move(made));
        }
    }

    static int device_of(std::size_t number) { return static_cast<int>(number / kOfEach); }
    const CudaContext& context(std::size_t number) const { return *contexts_[number / kOfEach]; }
    CUstream handle(std::size_t number) const {
        return number == 0 ? nullptr : streams_[number - 1].handle();
    }

    /// Before `number` is given work that reads, or writes, memory so used; noted in `use`.
    void before_read(StreamUse& use, std::size_t number) const {
        if (use.writer != StreamUse::kNobody) order(use.writer, number);
        use.readers |= 1U << number;
    }
    void before_write(StreamUse& use, std::size_t number) const {
        if (use.writer != StreamUse::kNobody) order(use.writer, number);
        for (std::size_t reader = 0; reader < kAll; ++reader) {
            if ((use.readers >> reader & 1U) != 0) order(reader, number);
        }
        use = {number, 0};
    }

    /// An event after all that the stream was given so far.
    CudaEvent mark(std::size_t number) const {
        auto event = CudaEvent::create(contexts_[number / kOfEach]);
        EXPECT_TRUE(event.has_value());
        EXPECT_TRUE(event->record(handle(number)).has_value());
        return *std::move(event);
    }
    void synchronize(std::size_t number) const {
        EXPECT_TRUE(frostline::synchronize(context(number), handle(number)).has_value());
    }
    void synchronize() const {
        for (std::size_t i = 0; i < kAll; ++i) synchronize(i);
    }

   private:
    void order(std::size_t first, std::size_t then) const {
        if (first == then) return;
        const CudaEvent event = mark(first);
        EXPECT_TRUE(wait_for(context(then), handle(then), event).has_value());
    }

    std::vector<std::shared_ptr<CudaContext>> contexts_;
    std::vector<CudaStream> streams_;  // but for number 0
};

}  // namespace frostline
