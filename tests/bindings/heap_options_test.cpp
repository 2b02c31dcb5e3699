// Proves that wrong options of a heap, and calls that it refuses, are told in one clear line: what
// is wrong, where, and what to do.
#include "frostline/heap.h"
#include "tests/bindings/environment.h"
#include "tests/tiers/emulated_gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace frostline {
namespace {

struct Refused {
    std::vector<std::string> options;
    const char* told;
    frostline_status status = FROSTLINE_INVALID_ARGUMENT;
};

void expect_told(const Refused& each) {
    std::vector<const char*> texts;
    for (const std::string& option : each.options) texts.push_back(option.c_str());
    texts.push_back(nullptr);
    frostline_heap* heap = nullptr;
    EXPECT_EQ(frostline_heap_open(texts.data(), &heap), each.status) << each.told;
    EXPECT_EQ(heap, nullptr);
    const std::string told = frostline_last_error();
    EXPECT_EQ(told, each.told);
    EXPECT_EQ(told.find('\n'), std::string::npos) << told;
}

TEST(HeapOptions, WrongOnesAreToldInOneLine) {
    const std::vector<Refused> all{
        {{}, "kind is missing: give kind=host or kind=device"},
        {{"kind=tape"}, "kind: 'tape' is neither host nor device: give one of these"},
        {{"kind=host", "kind=device"}, "option 'kind' is given twice: give it once"},
        {{"kind=host", "capacity=1MiB", "capacity=1MiB"},
         "option 'capacity' is given twice: give it once"},
        {{"kind=host", "capacity=0"},
         "capacity: '0' is no room for a heap: give a size such as 2MiB, or leave it out for the "
         "default"},
        {{"kind=host", "chunk=0"},
         "chunk: '0' is no room for a heap: give a size such as 2MiB, or leave it out for the "
         "default"},
        {{"kind=host", "capacity=12Q"},
         "capacity: '12Q' is not a size: write a number and a unit such as 512MiB, 1.5GiB or 4096"},
        {{"kind=host", "capacity=1MiB"},
         "capacity: 1048576 bytes are less than one chunk of 2097152: raise it, or give a smaller "
         "chunk"},
        {{"kind=device", "capacity=8MiB", "chunk=16MiB"},
         "capacity: 8388608 bytes are less than one chunk of 16777216: raise it, or give a smaller "
         "chunk"},
        {{"kind=host", "capacity=8MiB", "chunk=100", "name=buffers"},
         "opening buffers: chunks of 100 bytes: give a power of two of at least 65536"},
        {{"kind=host", "name="},
         "name: it has 0 bytes: give from 1 to 64, or leave it out for the default"},
        {{"kind=host", "name=" + std::string(65, 'n')},
         "name: it has 65 bytes: give from 1 to 64, or leave it out for the default"},
        {{"kind=host", "name=two\nlines"},
         "name: character 4 is a control character (a newline, for example): give one line of "
         "text"},
        {{"kind=host", "name=\x1b[31m"},
         "name: character 1 is a control character (a newline, for example): give one line of "
         "text"},
        {{"kind=host", "peers=1"}, "peers is for device memory: leave it out, or change the kind"},
        {{"kind=device", "peers=0"}, "peers: GPU 0 is the heap's own: name only others"},
        {{"kind=device", "gpu=3", "peers=1,3"}, "peers: GPU 3 is the heap's own: name only others"},
        {{"kind=device", "peers=1,2,1"}, "peers: GPU 1 is named twice: once is enough"},
        {{"kind=device", "peers=1,,2"},
         "peers: '' is not the number of a GPU: give a whole number from 0"},
        {{"kind=device", "numa_node=0"},
         "numa_node is for host memory: leave it out, or change the kind"},
        {{"kind=host", "gpu=0"},
         "gpu is for device memory, or for pin: leave it out, or change the kind"},
        {{"kind=host", "debug=perhaps"}, "debug: 'perhaps' is neither true nor false: give 1 or 0"},
    };
    for (const Refused& each : all) expect_told(each);
}

TEST(HeapOptions, AreNotBoundByTheirLongestName) {
    const std::string name = "name=" + std::string(64, 'n');
    const char* const options[] = {"kind=host", "capacity=2MiB", name.c_str(), nullptr};
    frostline_heap* heap = nullptr;
    ASSERT_EQ(frostline_heap_open(options, &heap), FROSTLINE_OK) << frostline_last_error();
    void* block = nullptr;
    EXPECT_EQ(frostline_heap_alloc(heap, 3 << 20, 0, nullptr, &block), FROSTLINE_NO_SPACE);
    const std::string told = frostline_last_error();
    EXPECT_TRUE(told.starts_with(name.substr(5)));
    EXPECT_TRUE(
        told.ends_with(": 3145728 bytes are more than its whole budget of 2097152: ask for "
                       "less, or open it with more capacity"))
        << told;
    EXPECT_EQ(frostline_heap_close(heap), FROSTLINE_OK);
}

TEST(HeapOptions, GpusThatAreNotThereAreToldAsThat) {
    const EmulatedGpu gpu("memory=64MiB,devices=2");
    const EnvironmentVariable driver("FROSTLINE_CUDA_DRIVER", FROSTLINE_EMULATOR);
    const std::vector<Refused> all{
        {{"kind=device", "gpu=7"}, "opening device heap: there is no GPU 7: the driver has 2"},
        {{"kind=device", "capacity=8MiB", "peers=1,9", "name=g"},
         "opening g: peers: there is no GPU 9: the driver has 2, counted from 0"},
        {{"kind=device", "capacity=8MiB", "chunk=100"},
         "opening device heap: chunks of 100 bytes: give the device's granularity of 2097152 times "
         "a power of two"},
        {{"kind=device", "capacity=1TiB"},
         "opening device heap: a heap of 1099511627776 bytes exceeds the 67108864 bytes of GPU 0: "
         "lower its capacity, or leave it out for what is free"},
    };
    for (const Refused& each : all) expect_told(each);
}

TEST(HeapOptions, AHeapThatIsNotThereIsToldAsThat) {
    void* block = nullptr;
    EXPECT_EQ(frostline_heap_alloc(nullptr, 100, 0, nullptr, &block), FROSTLINE_INVALID_ARGUMENT);
    EXPECT_STREQ(frostline_last_error(),
                 "heap is NULL: give what frostline_heap_open() set; an object that was moved from "
                 "has no heap");
}

}  // namespace
}  // namespace frostline
