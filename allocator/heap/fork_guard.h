// Tells a forked child from the process that made a heap, at the cost of one load: the kernel hands
// the child a page of zeros in place of this one.
#pragma once

#include "tiers/result.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace frostline {

/// Thread-safe.
class ForkGuard {
   public:
    /// Errors: out_of_memory, unsupported (a kernel before 4.14).
    static Result<std::unique_ptr<ForkGuard>> create() noexcept;
    ForkGuard(const ForkGuard&) = delete;
    ForkGuard& operator=(const ForkGuard&) = delete;
    ~ForkGuard();

    bool in_child() const noexcept { return word_->load(std::memory_order_relaxed) == 0; }

   private:
    explicit ForkGuard(std::atomic<std::uint32_t>* word) noexcept : word_(word) {}
    std::atomic<std::uint32_t>* const word_;
};

}  // namespace frostline
