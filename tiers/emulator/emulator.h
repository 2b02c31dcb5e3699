// Control of the emulated CUDA driver by the tests that run on it: settings, planted faults, what
// was misused, what ran when. A C interface, so that a test may find it by name in a library that
// it loaded. Every function may be called from any thread at any time, and none throws.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FROSTLINE_EMULATOR_API __attribute__((visibility("default")))

/// Ends all queued and running work, reports what was leaked, frees everything and starts anew as
/// if cuInit had not been called yet. settings: "memory=64MiB,seed=7", the names of the environment
/// variables in lower case without FROSTLINE_EMULATOR_; what is not named keeps the environment's
/// value; null is as "". Handles and addresses of before are dead. Planted faults, call counts,
/// misuse reports (but for the leaks found by this very call) and the timeline are forgotten.
/// @return 0; -1 after one line on stderr if the settings are wrong, and cuInit will fail then.
FROSTLINE_EMULATOR_API int frostline_emulator_restart(const char* settings);

/// From now on the nth call (1: the next one) of `function` ("cuMemCreate"; a version suffix may be
/// left out) returns `result`, a CUresult, and has no effect. One fault for each function and nth.
/// @return 0, or -1 if the emulator exports no such function or nth is 0.
FROSTLINE_EMULATOR_API int frostline_emulator_plant_fault(const char* function, unsigned nth,
                                                          int result);

/// How often `function` has been called since the start, failures and planted faults included.
FROSTLINE_EMULATOR_API uint64_t frostline_emulator_calls(const char* function);

/// How many reports of misuse there are; those beyond 10,000 are counted and not kept.
FROSTLINE_EMULATOR_API size_t frostline_emulator_misuse_count(void);

/// "name: details" of one report, oldest first; null if there is none such. Valid until the next
/// call of frostline_emulator_clear_misuse or _restart.
FROSTLINE_EMULATOR_API const char* frostline_emulator_misuse(size_t index);

FROSTLINE_EMULATOR_API void frostline_emulator_clear_misuse(void);

/// The name of a kind of misuse; null if there are not so many. Sorted by name.
FROSTLINE_EMULATOR_API const char* frostline_emulator_misuse_kind(size_t index);

/// One sentence on a kind of misuse by its name; null for an unknown name.
FROSTLINE_EMULATOR_API const char* frostline_emulator_explain(const char* misuse_name);

/// Host memory larger than this cannot be registered in one piece: cuMemHostRegister then says
/// out of memory, as drivers do whose limit is not documented. 0: no limit.
FROSTLINE_EMULATOR_API void frostline_emulator_limit_registration(size_t bytes);

enum frostline_emulator_kind {
    FROSTLINE_EMULATOR_KERNEL = 0,
    FROSTLINE_EMULATOR_COPY_H2D = 1,
    FROSTLINE_EMULATOR_COPY_D2H = 2,
    FROSTLINE_EMULATOR_COPY_D2D = 3,
    FROSTLINE_EMULATOR_COPY_H2H = 4,
    FROSTLINE_EMULATOR_FILL = 5,
    FROSTLINE_EMULATOR_HOST_FUNCTION = 6,
    FROSTLINE_EMULATOR_MEMORY = 7  ///< stream-ordered allocation or release
};

struct frostline_emulator_operation {
    int kind;           ///< frostline_emulator_kind
    int device;         ///< ordinal
    uint64_t stream;    ///< what cuStreamGetId says
    uint64_t start_ns;  ///< CLOCK_MONOTONIC, when an engine took it
    uint64_t end_ns;    ///< when its effect was complete
    uint64_t bytes;     ///< moved or filled; 0 for kernels and host functions
};

/// Copies up to `capacity` of the operations that ended since the start or the last
/// frostline_emulator_clear_timeline, in the order in which they ended, and returns how many there
/// are. The newest 100,000 are kept.
FROSTLINE_EMULATOR_API size_t
frostline_emulator_timeline(struct frostline_emulator_operation* operations, size_t capacity);

FROSTLINE_EMULATOR_API void frostline_emulator_clear_timeline(void);

/// Whether an instantiated graph that is not destroyed names memory at this address, so that its
/// next launch will touch it: 1 or 0.
FROSTLINE_EMULATOR_API int frostline_emulator_captured(uint64_t address);

#ifdef __cplusplus
}
#endif
