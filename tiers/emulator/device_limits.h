// What the emulated devices can run: the numbers that programs are told and those that launches are
// held to are the same ones. They are those of compute capability 9.0, with fewer multiprocessors.
#pragma once

namespace frostline::emulator {

inline constexpr int kMultiprocessors = 16;
inline constexpr int kWarp = 32;
inline constexpr int kMaxThreadsPerBlock = 1024;
inline constexpr int kMaxBlockDepth = 64;
inline constexpr int kMaxGridWidth = 2147483647;
inline constexpr int kMaxGridHeight = 65535;
inline constexpr int kMaxThreadsPerMultiprocessor = 2048;
inline constexpr int kMaxBlocksPerMultiprocessor = 32;
inline constexpr int kDefaultSharedBytes = 48 << 10;
inline constexpr int kMaxSharedBytes = 227 << 10;
inline constexpr int kSharedBytesPerMultiprocessor = 228 << 10;

}  // namespace frostline::emulator
