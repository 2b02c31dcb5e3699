// The HostHeap of CPU tensors, seen without Frostline's own headers: PyTorch brings an {fmt} of its
// own, which must not meet the one that those include.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace frostline {

/// Thread-safe. Ends never: tensors outlive every static object.
class CpuHeap {
   public:
    using Message = std::array<char, 400>;
    enum class Outcome : std::uint8_t {
        done,
        forked,   ///< the process is a child of the one that made the heap: nothing was done
        refused,  ///< the message says why
    };
    struct Figures {
        std::uint64_t live_bytes = 0;
        std::uint64_t mapped_bytes = 0;
        std::uint64_t births = 0;
    };

    /// Of at most so many bytes; 0: all of the machine's. Null, and a message, if it cannot be.
    static CpuHeap* create(std::uint64_t capacity_bytes, Message& message) noexcept;

    /// Null for no bytes.
    Outcome allocate(std::size_t size_bytes, void*& block, Message& message) noexcept;
    Outcome free(void* block, Message& message) noexcept;
    bool owns(const void* address) const noexcept;
    Figures figures() const noexcept;

   private:
    struct Parts;
    explicit CpuHeap(std::unique_ptr<Parts> parts) noexcept;
    ~CpuHeap();

    std::unique_ptr<Parts> parts_;
};

}  // namespace frostline
