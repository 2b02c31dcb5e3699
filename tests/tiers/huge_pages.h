// Whether a piece of this process's memory lies in huge pages, as the kernel tells.
#pragma once

#include "tests/tiers/process_state.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace frostline {

inline bool kernel_has_huge_pages() {
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
    std::string setting;
    std::getline(file, setting);
    return !setting.empty() && setting.find("[never]") == std::string::npos;
}

/// The mapping at `address` is touched, and is in huge pages wherever the kernel has some.
inline void expect_huge_pages(const void* address) {
    const std::uint64_t huge = mapping_bytes(address, "AnonHugePages");
    if (kernel_has_huge_pages()) {
        EXPECT_GT(huge, 0U);
    } else {
        EXPECT_EQ(huge, 0U);
    }
}

}  // namespace frostline
