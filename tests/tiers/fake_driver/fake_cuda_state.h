// What the fake driver has been asked, and what it is to refuse. Shared by the library and the
// tests; not thread-safe, except that calls may come from any thread one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

struct FakeCudaState {
    // What is to go wrong; 0: nothing.
    std::size_t refuse_registrations_above = SIZE_MAX;  ///< bytes in one call
    int refuse_registration_from = 0;                   ///< the n-th call and all later ones
    int refuse_unregistrations = 0;                     ///< this many are still to be refused
    int refuse_push = 0;

    int registrations = 0;
    int unregistrations = 0;
    int calls_without_context = 0;  ///< made with another than the primary context current
    int calls_unsafe_in_capture = 0;
    int bad_calls = 0;  ///< overlaps, unknown addresses, an unbalanced context stack
    int primary_retained = 0;
    std::map<std::uintptr_t, std::size_t> registered;

    const void* current_context = nullptr;  ///< what cuCtxGetCurrent would say
    int capture_mode = 0;                   ///< of the thread; 0 is global, 2 relaxed
};
