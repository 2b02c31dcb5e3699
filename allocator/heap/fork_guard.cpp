// MADV_WIPEONFORK: the kernel does at fork what no handler could be trusted to do.
#include "allocator/heap/fork_guard.h"

#include "tiers/check.h"
#include "tiers/page.h"

#include <sys/mman.h>

#include <cerrno>
#include <new>

namespace frostline {

Result<std::unique_ptr<ForkGuard>> ForkGuard::create() noexcept {
    void* const page =
        mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return Error(Errc::out_of_memory, errno, "making a heap's guard page");
    std::unique_ptr<ForkGuard> guard;
    int refused = ENOMEM;
    if (madvise(page, kPageBytes, MADV_WIPEONFORK) == 0) {
        guard.reset(new (std::nothrow) ForkGuard(new (page) std::atomic<std::uint32_t>(1)));
    } else {
        refused = errno;
    }
    if (guard != nullptr) return guard;
    munmap(page, kPageBytes);
    return Error(refused == ENOMEM ? Errc::out_of_memory : Errc::unsupported, refused,
                 "asking the kernel to wipe a page in forked children (Linux 4.14 can)");
}

ForkGuard::~ForkGuard() {
    FROSTLINE_CHECK(munmap(word_, kPageBytes) == 0, "giving back a heap's guard page");
}

}  // namespace frostline
