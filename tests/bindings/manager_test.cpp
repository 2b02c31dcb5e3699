// Proves the C++ face: a manager opens on good options only, loses nothing it was given, and lives
// as long as the last copy or pin of it.
#include "bindings/manager.h"

#include "tests/tiers/scratch_folder.h"
#include "tests/tiers/seed.h"
#include "tests/tiers/tier_specimen.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <string>
#include <thread>

namespace frostline {
namespace {

constexpr std::uint64_t kMi = std::uint64_t{1} << 20;

class ManagerTest : public testing::Test {
   protected:
    Bytes some(std::uint64_t size_bytes) { return random_bytes(random_, size_bytes); }
    ManagerOptions small() const {
        return {.dram_bytes = kMi,
                .pmem_path = folder_.file("pmem"),
                .pmem_bytes = 2 * kMi,
                .swap_places = {folder_.path()},
                .swap_bytes = 64 * kMi,
                .verify = true,
                // Where figures were taken beside other tests, any tier may come out the faster.
                .calibrate = false};
    }
    static ManagerOptions with_pmem(const std::string& path, std::uint64_t size_bytes = 0) {
        ManagerOptions options;
        options.dram_bytes = kMi;
        options.pmem_path = path;
        options.pmem_bytes = size_bytes;
        return options;
    }
    static ManagerOptions with_swap(const std::string& directory) {
        ManagerOptions options;
        options.dram_bytes = kMi;
        options.swap_places = {directory};
        return options;
    }
    // A file as a user might name it.
    std::string file(const char* name, std::uint64_t size_bytes, mode_t mode = 0600) const {
        std::string path = folder_.file(name);
        std::ofstream(path) << std::string(size_bytes, 'x');
        EXPECT_EQ(::chmod(path.c_str(), mode), 0);
        return path;
    }
    static void expect_refused(const ManagerOptions& options, Errc code, const std::string& said) {
        const auto manager = Manager::open(options);
        ASSERT_FALSE(manager.has_value()) << "this was to be refused: " << said;
        EXPECT_EQ(manager.error().code(), code) << manager.error().message();
        EXPECT_NE(std::string(manager.error().message()).find(said), std::string::npos)
            << manager.error().message();
    }

    std::mt19937_64 random_ = random_stream(60);
    ScratchFolder folder_;
};

TEST_F(ManagerTest, needs_a_dram_budget) {
    expect_refused({}, Errc::invalid_argument, "dram");
    ManagerOptions no_dram = with_swap(folder_.path());
    no_dram.dram_bytes.reset();
    expect_refused(no_dram, Errc::invalid_argument, "dram");
    EXPECT_EQ(folder_.entries(), 0U);
}

TEST_F(ManagerTest, refuses_unusable_swap_directories) {
    const std::string missing = folder_.file("missing");
    expect_refused(with_swap(missing), Errc::not_found, missing);
    const std::string a_file = file("file", 10);
    expect_refused(with_swap(a_file), Errc::not_found, a_file);
    if (::geteuid() == 0) return;  // root may write anywhere
    const std::string locked = folder_.file("locked");
    ASSERT_EQ(::mkdir(locked.c_str(), 0500), 0);
    expect_refused(with_swap(locked), Errc::permission, locked);
}

TEST_F(ManagerTest, refuses_unusable_pmem_files) {
    const std::string lost = folder_.file("missing/pmem");
    expect_refused(with_pmem(lost), Errc::not_found, lost);
    const std::string tiny = file("tiny", 4096);
    expect_refused(with_pmem(tiny), Errc::invalid_argument, "4096");
    expect_refused(with_pmem(tiny, 2 * kMi), Errc::invalid_argument, "too small");
    const std::string open_to_all = file("open", 2 * kMi, 0644);
    expect_refused(with_pmem(open_to_all), Errc::permission, "chmod");
    const std::string link = folder_.file("link");
    ASSERT_EQ(::symlink(file("target", 2 * kMi).c_str(), link.c_str()), 0);
    expect_refused(with_pmem(link), Errc::permission, link);
    ASSERT_FALSE(Manager::open(with_pmem(folder_.path())).has_value());
    EXPECT_EQ(std::filesystem::file_size(tiny), 4096U) << "somebody's file was changed";
    expect_refused(with_pmem(folder_.file("new"), 4096), Errc::invalid_argument, "too few");
    EXPECT_FALSE(std::filesystem::exists(folder_.file("new"))) << "a refused file stayed behind";
}

TEST_F(ManagerTest, refuses_a_pmem_file_that_another_process_uses) {
    const std::string path = file("pmem", 2 * kMi);
    std::array<int, 2> ready{};
    std::array<int, 2> over{};
    ASSERT_EQ(::pipe(ready.data()), 0);
    ASSERT_EQ(::pipe(over.data()), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        ::close(over[1]);
        char byte = 0;
        const auto manager = Manager::open(with_pmem(path));
        byte = manager ? 'y' : 'n';
        (void)!::write(ready[1], &byte, 1);
        (void)!::read(over[0], &byte, 1);  // until the parent closes its end
        ::_exit(0);
    }
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    EXPECT_EQ(byte, 'y') << "the other process could not open it";
    expect_refused(with_pmem(path), Errc::busy, "another process");
    for (const int each : {over[1], over[0], ready[0], ready[1]}) ::close(each);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(Manager::open(with_pmem(path)).has_value()) << "it is free again";
    EXPECT_EQ(std::filesystem::file_size(path), 2 * kMi) << "the user's own file stays";
}

TEST_F(ManagerTest, a_forked_child_is_refused_and_harms_nothing) {
    auto manager = Manager::open(small());
    ASSERT_TRUE(manager.has_value());
    const Bytes bytes = some(3 * kMi / 2);
    const TensorId id = *manager->put(bytes);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        Bytes out(bytes.size());
        const bool refused = !manager->get(id, out) && !manager->put(out) && !manager->drop(id) &&
                             manager->get(id, out).error().code() == Errc::unsupported;
        ::_exit(refused ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "the child was let in";
    Bytes out(bytes.size());
    ASSERT_TRUE(manager->get(id, out).has_value());
    EXPECT_EQ(out, bytes);
}

TEST_F(ManagerTest, stores_more_than_dram_and_leaves_nothing_behind) {
    {
        auto manager = Manager::open(small());
        ASSERT_TRUE(manager.has_value()) << manager.error().message();
        std::vector<std::pair<TensorId, Bytes>> stored;
        for (int i = 0; i < 20; ++i) {
            Bytes bytes = some(300'000);
            const auto id = manager->put(bytes);
            ASSERT_TRUE(id.has_value()) << id.error().message();
            stored.emplace_back(*id, std::move(bytes));
        }
        ASSERT_TRUE(manager->step().has_value());
        for (auto each = stored.rbegin(); each != stored.rend(); ++each) {
            EXPECT_EQ(*manager->size_bytes(each->first), each->second.size());
            auto pinned = manager->pin(each->first, Access::read);
            ASSERT_TRUE(pinned.has_value()) << pinned.error().message();
            EXPECT_TRUE(std::equal(each->second.begin(), each->second.end(),
                                   pinned->bytes().begin(), pinned->bytes().end()));
        }
        const ManagerStats stats = manager->stats();
        ASSERT_EQ(stats.tiers.size(), 3U);
        EXPECT_STREQ(stats.tiers[0].name, "dram");
        EXPECT_STREQ(stats.tiers[1].name, "pmem");
        EXPECT_STREQ(stats.tiers[1].label, "emulated");
        EXPECT_STREQ(stats.tiers[2].name, "swap");
        EXPECT_EQ(stats.tiers[1].location, folder_.file("pmem"));
        EXPECT_EQ(stats.stored, 20U);
        EXPECT_EQ(stats.stored_bytes, 20U * 300'000);
        EXPECT_EQ(stats.hits + stats.use_stalls, 20U);
        for (const TierStats& each : stats.tiers) {
            EXPECT_LE(each.peak_bytes, each.budget_bytes) << each.name;
            EXPECT_GT(each.peak_bytes, 0U) << each.name << " was not needed";
        }
        ASSERT_FALSE(manager->timeline().empty());
        EXPECT_EQ(manager->timeline()[0].used_bytes.size(), 3U);
        EXPECT_EQ(manager->trace()->find("frostline-trace 1\ntensor 0 300000 "), 0U);
        EXPECT_EQ(folder_.entries(), 1U) << "the swap file has a name";
    }
    EXPECT_EQ(folder_.entries(), 0U) << "the pmem file that it made stays behind";
}

TEST_F(ManagerTest, a_pin_outlives_drop_close_and_the_manager) {
    PinnedTensor outlives;
    EXPECT_TRUE(outlives.bytes().empty());
    const Bytes bytes = some(100'000);
    {
        auto manager = Manager::open(small());
        ASSERT_TRUE(manager.has_value());
        const TensorId id = *manager->put(bytes);
        auto pinned = manager->pin(id, Access::read);
        ASSERT_TRUE(pinned.has_value());
        EXPECT_EQ(*manager->pins(), 1U);
        outlives = *std::move(pinned);
        EXPECT_EQ(*manager->pins(), 1U) << "moving a pin neither pins nor unpins";
        ASSERT_TRUE(manager->drop(id).has_value());
        EXPECT_EQ(manager->pin(id, Access::read).error().code(), Errc::not_found);
        ASSERT_TRUE(manager->close().has_value());
    }
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), outlives.bytes().begin()));
    outlives = PinnedTensor();
    EXPECT_EQ(folder_.entries(), 0U);
}

TEST_F(ManagerTest, copies_are_the_same_manager) {
    auto manager = Manager::open(small());
    ASSERT_TRUE(manager.has_value());
    Manager copy = *manager;
    const Bytes bytes = some(1000);
    const TensorId id = *manager->put(bytes);
    manager = Error(Errc::cancelled, 0, "the first copy is gone");
    Bytes out(1000);
    ASSERT_TRUE(copy.get(id, out).has_value());
    EXPECT_EQ(out, bytes);
    std::thread([copy, id]() mutable { EXPECT_TRUE(copy.drop(id).has_value()); }).join();
    EXPECT_EQ(copy.stats().dropped, 1U);
}

TEST_F(ManagerTest, a_closed_manager_takes_nothing_new_but_gives_back) {
    auto manager = Manager::open(small());
    ASSERT_TRUE(manager.has_value());
    const Bytes bytes = some(3 * kMi / 2);
    const TensorId id = *manager->put(bytes);
    ASSERT_TRUE(manager->close().has_value());
    EXPECT_EQ(manager->put(bytes).error().code(), Errc::closed);
    EXPECT_EQ(manager->put(some(10)).error().code(), Errc::closed);
    Bytes out(bytes.size());
    ASSERT_TRUE(manager->get(id, out).has_value());
    EXPECT_EQ(out, bytes);
    EXPECT_TRUE(manager->drop(id).has_value());
}

TEST_F(ManagerTest, adopted_buffers_come_back_once) {
    std::atomic<int> released{0};
    const BufferRelease release{
        [](void* user, std::byte*, std::uint64_t) { ++*static_cast<std::atomic<int>*>(user); },
        &released};
    std::vector<Bytes> buffers;
    for (int i = 0; i < 10; ++i) buffers.push_back(some(250'000));
    {
        auto manager = Manager::open(small());
        ASSERT_TRUE(manager.has_value());
        std::vector<TensorId> ids;
        for (Bytes& each : buffers) {
            const auto id = manager->adopt(each, release, ids.size() % 3 == 0);
            ASSERT_TRUE(id.has_value()) << id.error().message();
            ids.push_back(*id);
        }
        for (std::size_t i = 0; i < ids.size(); i += 2) {
            ASSERT_TRUE(manager->settle(ids[i]).has_value());
            ASSERT_TRUE(manager->drop(ids[i]).has_value());
        }
    }
    EXPECT_EQ(released, 10);
}

// The owner of a buffer lets go of the last manager on the very worker that gives the buffer back.
TEST_F(ManagerTest, may_end_on_its_own_worker) {
    struct Owner {
        std::optional<Manager> manager;
        std::promise<void> is_last;
        std::promise<void> ended;
    };
    Owner owner;
    Bytes moves = some(kMi * 15 / 16);  // so much that it leaves at once
    Bytes stays = some(100);
    {
        // Swap alone: libpmem has state of its own that goes when the process exits.
        auto manager = Manager::open(with_swap(folder_.path()));
        ASSERT_TRUE(manager.has_value());
        owner.manager = *manager;
        const auto ended = [](void* user, std::byte*, std::uint64_t) {
            static_cast<Owner*>(user)->ended.set_value();
        };
        ASSERT_TRUE(manager->adopt(stays, {ended, &owner}, true).has_value());
        const auto given_back = [](void* user, std::byte*, std::uint64_t) {
            auto* const mine = static_cast<Owner*>(user);
            mine->is_last.get_future().wait();
            mine->manager.reset();
        };
        ASSERT_TRUE(manager->adopt(moves, {given_back, &owner}, false).has_value());
    }
    owner.is_last.set_value();
    owner.ended.get_future().wait();  // the engine goes, and gives back what it still had
}

}  // namespace
}  // namespace frostline
