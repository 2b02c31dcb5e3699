// Uses every C++ face of an installed Frostline; returns the line that went wrong, 0 if none did.
#include <frostline/allocator.h>
#include <frostline/device_memory.h>
#include <frostline/memory_resource.h>
#include <frostline/tensor_buffer.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#define MUST(condition)                                                  \
    do {                                                                 \
        if (!(condition)) {                                              \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            return 1;                                                    \
        }                                                                \
    } while (0)

namespace {

int use_host_memory() {
    auto opened = frostline::HostMemory::open({.name = "host", .capacity_bytes = 64 << 20});
    MUST(opened);
    frostline::HostMemory memory = *std::move(opened);
    {
        std::vector<int, frostline::allocator<int>> numbers(100'000, 7,
                                                            frostline::allocator<int>(memory));
        frostline::memory_resource resource(memory);
        std::pmr::map<int, int> squares(&resource);
        for (int i = 0; i < 100; ++i) squares[i] = i * i;
        auto buffer = frostline::TensorBuffer::create(memory, 1 << 20);
        MUST(buffer && numbers[99'999] == 7 && squares[9] == 81);
        std::memset(buffer->data(), 1, buffer->size_bytes());
        MUST(memory.statistics()->live_blocks == 102);
        MUST(memory.close().failure().status() == FROSTLINE_BUSY);
    }
    MUST(memory.allocate(1 << 30).failure().status() == FROSTLINE_NO_SPACE);
    MUST(memory.close());
    return 0;
}

// Where there is no driver it must say so.
int use_device_memory() {
    auto memory = frostline::DeviceMemory::open({.capacity_bytes = 16 << 20});
    if (!memory && memory.failure().status() == FROSTLINE_NOT_FOUND) return 0;
    MUST(memory);
    auto buffer = frostline::TensorBuffer::create(*memory, 8 << 20, nullptr);
    MUST(buffer && memory->owns(buffer->data()));
    buffer->reset();
    MUST(memory->close());
    return 0;
}

}  // namespace

int main() {
    if (use_host_memory() + use_device_memory() != 0) return 1;
    std::puts(frostline_version());
    return 0;
}
