// A file or DAX device mapped through libpmem and locked against other processes: one process
// writes it at a time. Training data lies in it, so it is created 0600, and a link, a foreign or an
// ordinary-looking file of somebody else is refused rather than overwritten. What earlier users
// left in it is gone when it is open, or else needs_scrubbing() says so.
#pragma once

#include "tiers/file_descriptor.h"
#include "tiers/result.h"
#include "tiers/system_calls.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace frostline {

/// What a pmem file lies on.
enum class PmemMedium : std::uint8_t {
    file,    ///< an ordinary file, in the place of persistent memory
    fsdax,   ///< a file on a DAX file system
    devdax,  ///< a DAX character device
};

class PmemFile {
   public:
    static constexpr std::uint64_t kDefaultBytes = std::uint64_t{1} << 30;
    static constexpr std::uint64_t kMinimumBytes = std::uint64_t{1} << 20;

    struct Options {
        std::string path;
        /// 0: the whole file or device, or kDefaultBytes for a new file.
        std::uint64_t size_bytes = 0;
        const SystemCalls* calls = &SystemCalls::real();
        /// What lies in it is wanted: it is neither erased, nor is a new file removed at the end.
        bool keep_content = false;
        /// False: a file that is there keeps its holes. Only to look at it: when the disk is full,
        /// writing to one ends the program.
        bool allocate = true;
    };

    /// Opens or creates, locks, allocates every block (a full disk is an error here and no SIGBUS
    /// later) and maps. A device is never created. Errors: not_found (directory or device),
    /// permission, busy (locked by another process), invalid_argument (too small, neither regular
    /// file nor DAX device), no_space.
    static Result<PmemFile> open(const Options& options) noexcept;

    PmemFile(PmemFile&& other) noexcept;
    PmemFile& operator=(PmemFile&& other) noexcept;
    /// Unmaps; a file that open() created is removed, so that nothing of the run stays behind.
    ~PmemFile();

    /// Removes the file now if open() created it; the mapping stays good.
    void remove_if_created() noexcept;

    std::byte* address() const noexcept { return address_; }
    std::uint64_t size_bytes() const noexcept { return size_bytes_; }
    PmemMedium medium() const noexcept { return medium_; }
    /// Whether the mapping is to be treated as persistent memory: flushed and drained, not synced.
    /// On a file that libpmem was told to take for it, too.
    bool is_pmem() const noexcept { return is_pmem_; }
    /// Whether bytes of earlier users may still lie in it.
    bool needs_scrubbing() const noexcept { return needs_scrubbing_; }

   private:
    PmemFile() = default;
    Result<void> acquire();
    Result<void> check_owner(const struct stat& status) const;
    Result<void> prepare_file(const Options& options, std::uint64_t existing_bytes);
    Result<void> prepare_device(const Options& options, dev_t number);
    Result<void> erase(std::uint64_t size_bytes);
    Result<void> map();

    const SystemCalls* calls_ = nullptr;
    std::string path_;
    FileDescriptor file_;
    std::byte* address_ = nullptr;
    std::uint64_t size_bytes_ = 0;
    PmemMedium medium_ = PmemMedium::file;
    bool is_pmem_ = false;
    bool needs_scrubbing_ = false;
    bool created_ = false;
};

}  // namespace frostline
