// How a kernel is written so that it compiles for a GPU and for the emulator from one source. Under
// a CUDA compiler FROSTLINE_KERNEL is an ordinary __global__ function. Elsewhere the file becomes a
// shared library, a module, whose kernels are host functions: each kernel exports a description
// that the emulator finds by name.
//
// Such kernels know no barriers and no shared memory: every thread computes by itself. They name
// gridDim, blockDim, blockIdx and threadIdx as usual.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)

#define FROSTLINE_KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__)
#define FROSTLINE_DEVICE static __device__ __forceinline__

#else

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

/// Index or size of a grid or block, in the order of CUDA's dim3.
struct FrostlineDim3 {
    unsigned x, y, z;
};

struct FrostlineEmulatedLaunch {
    FrostlineDim3 grid;
    FrostlineDim3 block;
};

/// What a module exports for its kernel NAME, as frostline_kernel_NAME.
struct FrostlineEmulatedKernel {
    const char* name;
    std::size_t parameter_count;
    const std::size_t* parameter_offsets;  ///< in bytes within the packed parameters
    const std::size_t* parameter_sizes;
    const bool* parameter_is_pointer;
    std::size_t parameters_bytes;  ///< of all parameters, packed as a C struct would be
    /// Runs every thread of the grid, one after the other, on the calling thread.
    void (*run)(const FrostlineEmulatedLaunch& launch, const void* parameters);
};

namespace frostline::emulated {

template <class... Parameters>
struct ParameterLayout {
    static constexpr std::size_t kCount = sizeof...(Parameters);

    static constexpr auto make() {
        std::array<std::size_t, kCount + 1> offsets{};
        const std::array<std::size_t, kCount + 1> sizes{sizeof(Parameters)..., 0};
        const std::array<std::size_t, kCount + 1> alignments{alignof(Parameters)..., 1};
        std::size_t end = 0;
        for (std::size_t i = 0; i < kCount; ++i) {
            offsets[i] = (end + alignments[i] - 1) / alignments[i] * alignments[i];
            end = offsets[i] + sizes[i];
        }
        offsets[kCount] = end;
        return offsets;
    }
    static constexpr std::array<std::size_t, kCount + 1> kOffsets = make();
    static constexpr std::array<std::size_t, kCount + 1> kSizes{sizeof(Parameters)..., 0};
    static constexpr std::array<bool, kCount + 1> kPointers{std::is_pointer_v<Parameters>...,
                                                            false};
};

template <auto thread, class Function>
struct KernelRunner;

template <auto thread, class... Parameters>
struct KernelRunner<thread, void (*)(FrostlineDim3, FrostlineDim3, FrostlineDim3, FrostlineDim3,
                                     Parameters...)> {
    using Layout = ParameterLayout<std::remove_cv_t<Parameters>...>;

    template <class Parameter>
    static Parameter load(const void* parameters, std::size_t offset) {
        Parameter value;
        std::memcpy(&value, static_cast<const std::byte*>(parameters) + offset, sizeof(value));
        return value;
    }

    template <std::size_t... index>
    static void run_all(const FrostlineEmulatedLaunch& launch,
                        [[maybe_unused]] const void* parameters, std::index_sequence<index...>) {
        const std::tuple<std::remove_cv_t<Parameters>...> values{
            load<std::remove_cv_t<Parameters>>(parameters, Layout::kOffsets[index])...};
        const FrostlineDim3 grid = launch.grid;
        const FrostlineDim3 block = launch.block;
        FrostlineDim3 at{}, in{};
        for (at.z = 0; at.z < grid.z; ++at.z)
            for (at.y = 0; at.y < grid.y; ++at.y)
                for (at.x = 0; at.x < grid.x; ++at.x)
                    for (in.z = 0; in.z < block.z; ++in.z)
                        for (in.y = 0; in.y < block.y; ++in.y)
                            for (in.x = 0; in.x < block.x; ++in.x)
                                thread(grid, block, at, in, std::get<index>(values)...);
    }

    static void run(const FrostlineEmulatedLaunch& launch, const void* parameters) {
        run_all(launch, parameters, std::index_sequence_for<Parameters...>{});
    }

    static constexpr FrostlineEmulatedKernel describe(const char* name) {
        return {name,
                Layout::kCount,
                Layout::kOffsets.data(),
                Layout::kSizes.data(),
                Layout::kPointers.data(),
                Layout::kOffsets[Layout::kCount],
                &run};
    }
};

}  // namespace frostline::emulated

#define FROSTLINE_KERNEL(name, ...)                                                            \
    static inline void name##_thread(FrostlineDim3 gridDim, FrostlineDim3 blockDim,            \
                                     FrostlineDim3 blockIdx,                                   \
                                     FrostlineDim3 threadIdx __VA_OPT__(, ) __VA_ARGS__);      \
    extern "C" __attribute__((visibility("default")))                                          \
    const FrostlineEmulatedKernel frostline_kernel_##name =                                    \
        frostline::emulated::KernelRunner<&name##_thread, decltype(&name##_thread)>::describe( \
            #name);                                                                            \
    static inline void name##_thread(                                                          \
        [[maybe_unused]] FrostlineDim3 gridDim, [[maybe_unused]] FrostlineDim3 blockDim,       \
        [[maybe_unused]] FrostlineDim3 blockIdx,                                               \
        [[maybe_unused]] FrostlineDim3 threadIdx __VA_OPT__(, ) __VA_ARGS__)
#define FROSTLINE_DEVICE static inline

#endif
