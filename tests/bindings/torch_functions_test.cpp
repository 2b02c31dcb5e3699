// Proves that PyTorch can call the C functions as it does: by their names, with its types by value,
// an out-of-memory handler that throws through them or null without one, and no error that leaves.
//
// The functions serve one process for good, so each scene is played in one of its own.
#include "frostline/torch.h"
#include "tests/bindings/environment.h"
#include "tests/bindings/framework.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace frostline {
namespace {

constexpr std::size_t kMi = std::size_t{1} << 20;

// Ends the scene, and its process, where something is not as it must be.
void must(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "NOT SO: %s\n", what);
    std::_Exit(1);
}
#define MUST(condition) must(condition, #condition)

class TorchFunctions : public testing::Test {
   protected:
    void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

    template <class Scene>
    static void play(Scene scene) {
        Emulator::get().restart("memory=64MiB,devices=2,leaks=0");
        ::setenv("FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR, 1);
        ::setenv("FROSTLINE_TORCH_BUDGET", "16MiB", 1);
        scene();
        must(Emulator::get().misuse().empty(), Emulator::get().misuse().c_str());
        std::fprintf(stderr, "as it must be");
        std::_Exit(0);
    }
};

#define EXPECT_SCENE(scene) EXPECT_EXIT(play(scene), testing::ExitedWithCode(0), "as it must be$")

frostline_torch_statistics statistics(int device = 0) {
    frostline_torch_statistics now{};
    MUST(frostline_torch_get_statistics(device, &now) == 0);
    return now;
}

void use_everything() {
    frostline_torch_init(0);
    frostline_torch_init(2);
    MUST(frostline_torch_alloc(0, 0, nullptr) == nullptr);
    frostline_torch_free(nullptr, 0, 0, nullptr);
    frostline_torch_record_stream(nullptr, nullptr);
    void* const block = frostline_torch_alloc(3 * kMi, 1, nullptr);
    MUST(block != nullptr);
    MUST(frostline_torch_configure("1GiB", nullptr) != 0);
    MUST(std::string(frostline_last_error()).find("already") != std::string::npos);
    std::size_t size = 0;
    MUST(frostline_torch_base_alloc(static_cast<char*>(block) + kMi, &size) == block);
    MUST(size == 3 * kMi);
    int theirs = 0;
    MUST(frostline_torch_base_alloc(&theirs, &size) == &theirs);
    MUST(size == 0);
    MUST(frostline_torch_base_alloc(&theirs, nullptr) == &theirs);
    frostline_torch_record_stream(&theirs, nullptr);
    MUST(statistics(1).allocated_bytes.current == 3 * kMi);
    MUST(statistics(0).budget_bytes == 0);
    std::vector<frostline_torch_block> living(2);
    MUST(frostline_torch_live(1, living.data(), living.size()) == 1);
    MUST(living[0].size_bytes == 3 * kMi);
    MUST(frostline_torch_live(1, nullptr, 0) == 1);
    frostline_torch_memory_fraction(0.0, 1);
    MUST(statistics(1).budget_bytes == 0);
    frostline_torch_memory_fraction(2.0, 1);
    MUST(std::string(frostline_last_error()).find("fraction") != std::string::npos);
    frostline_torch_free(block, 3 * kMi, 1, nullptr);
    size = 1;
    MUST(frostline_torch_base_alloc(block, &size) == block);  // lives no longer
    MUST(size == 0);
    frostline_torch_reset();
    MUST(statistics(1).reserved_bytes.current == 0);
    MUST(frostline_torch_reset_peaks(1) == 0);
    MUST(frostline_torch_reset_accumulated(1) == 0);
    MUST(statistics(1).allocated_bytes.peak == 0);
    MUST(frostline_torch_reset_peaks(-1) != 0);
    MUST(frostline_torch_get_statistics(0, nullptr) != 0);
}

TEST_F(TorchFunctions, DoWhatPyTorchAsks) {
    EXPECT_SCENE(use_everything);
}

void use_pools() {
    bool asked = false;
    frostline_torch_begin_allocate_to_pool(0, {1, 2}, [&](CUstream) { return asked = true; });
    void* const block = frostline_torch_alloc(kMi, 0, nullptr);
    frostline_torch_end_allocate_to_pool(0, {1, 2});
    MUST(asked);
    frostline_torch_block living{};
    MUST(frostline_torch_live(0, &living, 1) == 1);
    MUST(living.pool[0] == 1 && living.pool[1] == 2);
    frostline_torch_release_pool(0, {1, 2});
    frostline_torch_release_pool(0, {7, 7});
    MUST(std::string(frostline_last_error()).find("(7, 7)") != std::string::npos);
    MUST(statistics().pools == 1);
    frostline_torch_free(block, kMi, 0, nullptr);
    frostline_torch_reset();
    MUST(statistics().pools == 0);
}

TEST_F(TorchFunctions, TakeWhatPyTorchSaysOfPools) {
    EXPECT_SCENE(use_pools);
}

struct Raised {
    std::string message;
};

void run_out_of_memory() {
    MUST(frostline_torch_alloc(17 * kMi, 0, nullptr) == nullptr);
    frostline_torch_on_out_of_memory([](const char* message) { throw Raised{message}; });
    std::string told;
    try {
        (void)frostline_torch_alloc(17 * kMi, 0, nullptr);
    } catch (const Raised& raised) {
        told = raised.message;
    }
    MUST(told.starts_with("CUDA out of memory. Tried to allocate 17.00 MiB on GPU 0: "));
    frostline_torch_on_out_of_memory(&frostline_torch_throw_out_of_memory);
    try {
        (void)frostline_torch_alloc(17 * kMi, 0, nullptr);
        MUST(false);
    } catch (const std::bad_alloc& error) {
        MUST(error.what() == told);
    }
    try {
        (void)frostline_torch_alloc(1, 9, nullptr);  // what is no lack of memory is null, too
        MUST(false);
    } catch (const std::bad_alloc& error) {
        MUST(std::string(error.what()).find("out of memory") == std::string::npos);
    }
    MUST(frostline_torch_alloc(0, 0, nullptr) == nullptr);
    MUST(statistics().out_of_memory == 3);
    void* const block = frostline_torch_alloc(15 * kMi, 0, nullptr);
    MUST(block != nullptr);
    frostline_torch_free(block, 15 * kMi, 0, nullptr);
}

TEST_F(TorchFunctions, TellOfMemoryThatRanOut) {
    EXPECT_SCENE(run_out_of_memory);
}

void free_what_is_wrong() {
    void* const block = frostline_torch_alloc(kMi, 0, nullptr);
    frostline_torch_free(block, kMi, 0, nullptr);
    frostline_torch_free(block, kMi, 0, nullptr);
    MUST(std::string(frostline_last_error()).find("freed") != std::string::npos);
    MUST(statistics().allocations.freed == 1);
}

TEST_F(TorchFunctions, ReportAFreeThatIsWrong) {
    EXPECT_EXIT(play(free_what_is_wrong), testing::ExitedWithCode(0), "frostline: .*freed");
}

// A child cannot use the GPU, and frees the tensors that it inherited when it ends.
void free_in_a_child() {
    void* const block = frostline_torch_alloc(kMi, 0, nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
        frostline_torch_free(block, kMi, 0, nullptr);
        frostline_torch_reset();
        std::_Exit(frostline_torch_alloc(kMi, 0, nullptr) == nullptr ? 0 : 1);
    }
    int status = -1;
    MUST(::waitpid(child, &status, 0) == child);
    MUST(status == 0);
    MUST(statistics().allocations.current == 1);
    frostline_torch_free(block, kMi, 0, nullptr);
}

TEST_F(TorchFunctions, DoNothingInAForkedChild) {
    EXPECT_SCENE(free_in_a_child);
}

}  // namespace
}  // namespace frostline
