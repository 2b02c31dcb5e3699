// Proves what a forked child of a program with a device tier can do, and that the rest is refused
// in words: CUDA does not survive a fork.
#include "bindings/manager.h"
#include "tests/bindings/environment.h"
#include "tests/tiers/emulated_gpu.h"
#include "tests/tiers/scratch_folder.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace frostline {
namespace {

// ThreadSanitizer ends a forked child that starts threads.
#if !defined(__SANITIZE_THREAD__)

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;

bool says(const Error& error, const char* words) {
    return error.code() == Errc::unsupported &&
           std::string(error.message()).find(words) != std::string::npos;
}

// 0, or which step went wrong.
int in_the_child(Manager& parents, ManagerOptions options) {
    if (!says(parents.put(std::vector<std::byte>(kMi)).error(), "without device")) return 1;
    if (!says(Manager::open(options).error(), "forked")) return 2;
    options.device_bytes.reset();
    const auto own = Manager::open(options);
    if (!own) return 3;
    Manager manager = *own;
    std::vector<TensorId> ids;
    for (int i = 0; i < 8; ++i) {
        const auto id = manager.put(std::vector<std::byte>(kMi, static_cast<std::byte>(i)));
        if (!id) return 4;
        ids.push_back(*id);
    }
    std::vector<std::byte> bytes(kMi);
    for (int i = 0; i < 8; ++i) {
        if (!manager.get(ids[static_cast<std::size_t>(i)], bytes)) return 5;
        if (bytes != std::vector<std::byte>(kMi, static_cast<std::byte>(i))) return 6;
    }
    return manager.close() ? 0 : 7;
}

TEST(ForkTest, C36_AChildHasNoGpuAndOpensAManagerWithoutOne) {
    const EnvironmentVariable driver("FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR);
    const EmulatedGpu gpu("memory=64MiB");
    const ScratchFolder folder;
    const ManagerOptions options{.device_bytes = 4 * kMi,
                                 .dram_bytes = 2 * kMi,
                                 .swap_places = {folder.path()},
                                 .swap_bytes = 16 * kMi,
                                 .calibrate = false};
    auto manager = Manager::open(options);
    ASSERT_TRUE(manager.has_value()) << manager.error().message();
    const auto id = manager->put(std::vector<std::byte>(kMi, std::byte{9}));
    ASSERT_TRUE(id.has_value());
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        alarm(30);
        _exit(in_the_child(*manager, options));
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 0);
    std::vector<std::byte> bytes(kMi);
    ASSERT_TRUE(manager->get(*id, bytes).has_value()) << "the child disturbed its parent";
    EXPECT_EQ(bytes, std::vector<std::byte>(kMi, std::byte{9}));
}

#endif

}  // namespace
}  // namespace frostline
