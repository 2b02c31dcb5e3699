// A file mapped through libpmem and locked against other processes: one process writes it at a
// time. Training data lies in it, so it is created 0600, and a link, a foreign or an
// ordinary-looking file of somebody else is refused rather than overwritten.
#pragma once

#include "tiers/file_descriptor.h"
#include "tiers/result.h"
#include "tiers/system_calls.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace frostline {

class PmemFile {
   public:
    static constexpr std::uint64_t kDefaultBytes = std::uint64_t{1} << 30;
    static constexpr std::uint64_t kMinimumBytes = std::uint64_t{1} << 20;

    struct Options {
        std::string path;
        std::uint64_t size_bytes = 0;  ///< 0: the whole file, or kDefaultBytes for a new one
        const SystemCalls* calls = &SystemCalls::real();
    };

    /// Opens or creates, locks, allocates every block (a full disk is an error here and no SIGBUS
    /// later) and maps. Errors: not_found (directory), permission, busy (locked by another
    /// process), invalid_argument (too small, not a regular file), no_space.
    static Result<PmemFile> open(const Options& options) noexcept;

    PmemFile(PmemFile&& other) noexcept;
    PmemFile& operator=(PmemFile&& other) noexcept;
    /// Unmaps; a file that open() created is removed, so that nothing of the run stays behind.
    ~PmemFile();

    /// Removes the file now if open() created it; the mapping stays good.
    void remove_if_created() noexcept;

    std::byte* address() const noexcept { return address_; }
    std::uint64_t size_bytes() const noexcept { return size_bytes_; }
    /// Whether the mapping is real persistent memory, as libpmem judges it.
    bool is_pmem() const noexcept { return is_pmem_; }

   private:
    PmemFile() = default;
    Result<void> acquire();
    Result<void> check_owner(const Options& options, std::uint64_t& existing_bytes);
    Result<void> map(const Options& options, std::uint64_t existing_bytes);

    const SystemCalls* calls_ = nullptr;
    std::string path_;
    FileDescriptor file_;
    std::byte* address_ = nullptr;
    std::uint64_t size_bytes_ = 0;
    bool is_pmem_ = false;
    bool created_ = false;
};

}  // namespace frostline
