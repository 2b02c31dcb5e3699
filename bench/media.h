// What the suites of tiers measure on: a DRAM tier with touched pages, an engine, and copies of
// many extents at once.
#pragma once

#include "tiers/copy_engine.h"
#include "tiers/dram_tier.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace frostline::bench {

inline constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

template <class T>
T expect(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().message());
    if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// A folder in TMPDIR, or /tmp, that goes with all that is in it.
class BenchFolder {
   public:
    BenchFolder();
    ~BenchFolder();
    BenchFolder(const BenchFolder&) = delete;
    BenchFolder& operator=(const BenchFolder&) = delete;
    const std::string& path() const { return path_; }

   private:
    std::string path_;
};

/// `total_bytes` of a tier in equal extents; they are released at the end.
class Extents {
   public:
    Extents(Tier& tier, std::uint64_t total_bytes, std::uint64_t extent_bytes);
    ~Extents();
    Extents(const Extents&) = delete;
    Extents& operator=(const Extents&) = delete;

    Tier& tier() const { return tier_; }
    const std::vector<Extent>& all() const { return extents_; }
    /// Puts them into a random order, always the same.
    void shuffle();
    /// In host memory: makes every page resident, with content that does not compress.
    void fill() const;

   private:
    Tier& tier_;
    std::vector<Extent> extents_;
};

/// One direction of a run: each extent of `from` to its like of `to`.
struct Flow {
    const Extents* from;
    const Extents* to;
};

struct CopyTime {
    double seconds = 0;
    double cpu_s = 0;  ///< of this process, all threads
};

/// Submits everything, as fast as the engine takes it, and waits for the end of the last copy.
CopyTime run_copies(CopyEngine& engine, const std::vector<Flow>& flows);

}  // namespace frostline::bench
