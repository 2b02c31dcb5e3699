// Every kernel that the program loads is in both modules, and nothing else is.
#include "bench/train/launches.h"
#include "tiers/emulator/kernel_module.h"

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

namespace frostline::train {
namespace {

std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file) << path;
    return {std::istreambuf_iterator<char>(file), {}};
}

int count(const std::string& text, const std::string& word) {
    int found = 0;
    for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
    return found;
}

TEST(TrainerModule, TheHostsDescribesEveryKernel) {
    void* module = dlopen(FROSTLINE_TRAIN_MODULE, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(module, nullptr) << dlerror();
    for (const std::string name : kKernelNames) {
        const auto* kernel = static_cast<const FrostlineEmulatedKernel*>(
            dlsym(module, ("frostline_kernel_" + name).c_str()));
        ASSERT_NE(kernel, nullptr) << name;
        EXPECT_EQ(kernel->name, name);
        EXPECT_EQ(kernel->parameter_count, 1U) << name;
        EXPECT_EQ(kernel->parameter_sizes[0], kernel->parameters_bytes) << name;
    }
    dlclose(module);
}

TEST(TrainerModule, TheGpusHasEveryKernelForTwoGenerationsAndAsPtx) {
    const std::string path = FROSTLINE_TRAIN_FATBIN;
    if (path.empty()) GTEST_SKIP() << "no CUDA compiler";
    const std::string binary = content(path);
    for (const std::string name : kKernelNames) {
        EXPECT_EQ(count(binary, ".visible .entry " + name + "("), 1) << name << " as PTX";
        const std::string section(".text." + name + '\0');
        EXPECT_GE(count(binary, section), 2) << name << " as machine code";
    }
    EXPECT_EQ(count(binary, ".visible .entry "), static_cast<int>(kKernelNames.size()));
    EXPECT_EQ(count(binary, ".target sm_80"), 1);
}

}  // namespace
}  // namespace frostline::train
