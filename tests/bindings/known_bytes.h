// The oracle of a program on a device: bytes that never change, which tensors are copies of, and
// what came back and is compared as soon as its copy has ended.
#pragma once

#include "tests/bindings/program_streams.h"
#include "tests/tiers/seed.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>

namespace frostline {

/// Pinned host memory.
class PinnedMemory {
   public:
    PinnedMemory(const Emulator& emulator, std::size_t size_bytes) : context_(emulator.context()) {
        void* made = nullptr;
        EXPECT_TRUE(context_
                        ->run([&] {
                            const CudaDriver& driver = context_->driver();
                            return driver.check(
                                "cuMemHostAlloc",
                                driver.cuMemHostAlloc(&made, size_bytes, CU_MEMHOSTALLOC_PORTABLE));
                        })
                        .has_value());
        bytes_ = {static_cast<std::byte*>(made), size_bytes};
    }
    PinnedMemory(const PinnedMemory&) = delete;
    PinnedMemory& operator=(const PinnedMemory&) = delete;
    ~PinnedMemory() {
        EXPECT_TRUE(context_
                        ->run([&] {
                            const CudaDriver& driver = context_->driver();
                            return driver.check("cuMemFreeHost",
                                                driver.cuMemFreeHost(bytes_.data()));
                        })
                        .has_value());
    }
    std::span<std::byte> bytes() const { return bytes_; }

   private:
    std::shared_ptr<CudaContext> context_;
    std::span<std::byte> bytes_;
};

/// Either one value throughout, or a part of the bytes that never change.
struct Content {
    std::optional<unsigned char> value;
    std::size_t offset = 0;
};

class KnownBytes {
   public:
    KnownBytes(const Emulator& emulator, std::mt19937_64& random, std::size_t largest_bytes)
        : memory_(emulator, 4 * largest_bytes), largest_bytes_(largest_bytes) {
        for (std::byte& each : memory_.bytes()) each = static_cast<std::byte>(random());
    }
    Content draw(std::mt19937_64& random) const {
        if (between(random, 0, 2) == 0) return {static_cast<unsigned char>(random()), 0};
        return {std::nullopt, between(random, 0, 3 * largest_bytes_)};
    }
    std::span<const std::byte> of(const Content& content, std::size_t size_bytes) const {
        return memory_.bytes().subspan(content.offset, size_bytes);
    }
    bool match(const Content& content, std::span<const std::byte> bytes) const {
        if (!content.value) {
            return std::memcmp(of(content, bytes.size()).data(), bytes.data(), bytes.size()) == 0;
        }
        for (const std::byte each : bytes) {
            if (each != std::byte{*content.value}) return false;
        }
        return true;
    }
    void write(const Content& content, std::span<std::byte> bytes) const {
        if (content.value) {
            std::memset(bytes.data(), *content.value, bytes.size());
        } else {
            std::memcpy(bytes.data(), of(content, bytes.size()).data(), bytes.size());
        }
    }
    /// Gives the stream work that writes it to device memory.
    void write(const Content& content, CUdeviceptr to, std::size_t size_bytes,
               const ProgramStreams& streams, std::size_t number) const {
        const CudaContext& context = streams.context(number);
        const CudaDriver& driver = context.driver();
        const CUstream stream = streams.handle(number);
        EXPECT_TRUE(context
                        .run([&] {
                            if (content.value) {
                                return driver.check(
                                    "cuMemsetD8Async",
                                    driver.cuMemsetD8Async(to, *content.value, size_bytes, stream));
                            }
                            const std::byte* const from = of(content, size_bytes).data();
                            return driver.check(
                                "cuMemcpyHtoDAsync",
                                driver.cuMemcpyHtoDAsync(to, from, size_bytes, stream));
                        })
                        .has_value());
    }

   private:
    PinnedMemory memory_;
    std::size_t largest_bytes_;
};

/// Copies from device memory on their way to the host. For one thread.
class Readbacks {
   public:
    Readbacks(const Emulator& emulator, const KnownBytes& known, std::size_t largest_bytes)
        : known_(known), memory_(emulator, kSlots * largest_bytes), largest_bytes_(largest_bytes) {}

    /// Gives the stream work that reads memory which must hold `content` by then.
    void start(CUdeviceptr from, std::size_t size_bytes, const Content& content,
               const std::string& what, const ProgramStreams& streams, std::size_t number) {
        const std::size_t slot = next_++ % kSlots;
        check(slot);
        const std::span<std::byte> to = memory_.bytes().subspan(slot * largest_bytes_, size_bytes);
        std::memset(to.data(), 0xa5, to.size());
        const CudaContext& context = streams.context(number);
        const CudaDriver& driver = context.driver();
        EXPECT_TRUE(context
                        .run([&] {
                            return driver.check(
                                "cuMemcpyDtoHAsync",
                                driver.cuMemcpyDtoHAsync(to.data(), from, size_bytes,
                                                         streams.handle(number)));
                        })
                        .has_value());
        slots_[slot].emplace(Slot{streams.mark(number), to, content, what});
    }
    void check_all() {
        for (std::size_t slot = 0; slot < kSlots; ++slot) check(slot);
    }

   private:
    static constexpr std::size_t kSlots = 16;
    struct Slot {
        CudaEvent event;
        std::span<std::byte> bytes;
        Content content;
        std::string what;
    };

    void check(std::size_t slot) {
        if (!slots_[slot]) return;
        EXPECT_TRUE(slots_[slot]->event.synchronize().has_value());
        EXPECT_TRUE(known_.match(slots_[slot]->content, slots_[slot]->bytes))
            << slots_[slot]->what << ": " << slots_[slot]->bytes.size() << " bytes are wrong";
        slots_[slot].reset();
    }

    const KnownBytes& known_;
    PinnedMemory memory_;
    std::size_t largest_bytes_;
    std::size_t next_ = 0;
    std::array<std::optional<Slot>, kSlots> slots_;
};

}  // namespace frostline
