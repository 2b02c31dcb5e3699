// FROSTLINE_CHECK states an invariant whose breach means that bytes could be lost: the program
// ends with one line instead of going on with wrong data. Bad input is never reported this way.
#pragma once

#include <cstdio>
#include <cstdlib>

#define FROSTLINE_CHECK(condition, what)                                                           \
    do {                                                                                           \
        if (!(condition)) [[unlikely]] {                                                           \
            std::fprintf(stderr, "frostline: broken invariant at %s:%d: %s\n", __FILE__, __LINE__, \
                         what);                                                                    \
            std::abort();                                                                          \
        }                                                                                          \
    } while (false)
