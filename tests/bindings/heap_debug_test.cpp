// Proves that a program which links the shared library is told of its own calls only: the places of
// a misuse or a leak begin in the program, however many of the library's own calls lie between.
#include "frostline/heap.h"
#include "tests/bindings/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <string>

namespace frostline {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

// The library stays loaded: its heaps' names outlive them.
void* loaded() {
    static void* const library = ::dlopen(shared_library().c_str(), RTLD_NOW | RTLD_LOCAL);
    return library;
}

template <class Function>
Function* function(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(loaded(), name));
}

class HeapDebug : public testing::Test {
   protected:
    void SetUp() override {
        ASSERT_NE(loaded(), nullptr) << ::dlerror();
        const char* const options[] = {"kind=host", "capacity=8MiB", "debug=1", nullptr};
        ASSERT_EQ(function<decltype(frostline_heap_open)>("frostline_heap_open")(options, &heap_),
                  FROSTLINE_OK);
    }
    void TearDown() override {
        EXPECT_EQ(function<decltype(frostline_heap_close)>("frostline_heap_close")(heap_),
                  FROSTLINE_OK);
    }
    void* allocate(std::size_t size_bytes) {
        void* block = nullptr;
        EXPECT_EQ(alloc_(heap_, size_bytes, 0, nullptr, &block), FROSTLINE_OK);
        return block;
    }
    std::string last_error() {
        return function<decltype(frostline_last_error)>("frostline_last_error")();
    }

    frostline_heap* heap_ = nullptr;
    decltype(frostline_heap_alloc)* alloc_ =
        function<decltype(frostline_heap_alloc)>("frostline_heap_alloc");
    decltype(frostline_heap_free)* free_ =
        function<decltype(frostline_heap_free)>("frostline_heap_free");
};

TEST_F(HeapDebug, PlacesOfADoubleFreeAreTheProgramsOwn) {
    for (const std::size_t size : {100, 40'000, 3'000'000}) {
        void* const block = allocate(size);
        EXPECT_EQ(free_(heap_, block), FROSTLINE_OK);
        EXPECT_EQ(free_(heap_, block), FROSTLINE_INVALID_ARGUMENT);
        const std::string told = last_error();
        EXPECT_THAT(told, HasSubstr("; allocated at test_bindings+0x"));
        EXPECT_THAT(told, HasSubstr(", freed at test_bindings+0x"));
        EXPECT_THAT(told, Not(HasSubstr("libfrostline")));
        EXPECT_THAT(told, MatchesRegex(".*(\\+0x[0-9a-f]+|< [0-9]+ more)")) << "cut in a call";
    }
}

TEST_F(HeapDebug, AnAddressInsideABlockIsToldWithTheBlocksPlace) {
    void* const block = allocate(40'000);
    EXPECT_EQ(free_(heap_, static_cast<char*>(block) + 512), FROSTLINE_INVALID_ARGUMENT);
    EXPECT_THAT(last_error(), HasSubstr("lies 512 bytes inside another"));
    EXPECT_THAT(last_error(), HasSubstr("; allocated at test_bindings+0x"));
    EXPECT_EQ(free_(heap_, block), FROSTLINE_OK);
}

}  // namespace
}  // namespace frostline
