// Proves that whichever call of the driver fails, and whichever time, a heap of GPU memory ends in
// an error or does without it: nothing is misused, no content is lost, and the same heap works
// afterwards.
#include "tests/allocator/device_heap_fixture.h"
#include "tiers/cuda_functions.h"

#include <array>
#include <optional>
#include <ostream>
#include <string_view>
#include <thread>

namespace frostline {
namespace {

constexpr auto kOfHeaps = std::to_array<std::string_view>({"cuDeviceGetCount",
                                                           "cuDeviceGet",
                                                           "cuDeviceGetAttribute",
                                                           "cuDevicePrimaryCtxRetain",
                                                           "cuDevicePrimaryCtxRelease",
                                                           "cuCtxPushCurrent",
                                                           "cuCtxPopCurrent",
                                                           "cuThreadExchangeStreamCaptureMode",
                                                           "cuMemGetInfo",
                                                           "cuMemGetAllocationGranularity",
                                                           "cuMemAddressReserve",
                                                           "cuMemAddressFree",
                                                           "cuMemCreate",
                                                           "cuMemRelease",
                                                           "cuMemMap",
                                                           "cuMemUnmap",
                                                           "cuMemSetAccess",
                                                           "cuDeviceCanAccessPeer",
                                                           "cuStreamWaitEvent",
                                                           "cuStreamIsCapturing",
                                                           "cuStreamGetCtx",
                                                           "cuCtxGetDevice",
                                                           "cuEventCreate",
                                                           "cuEventDestroy",
                                                           "cuEventRecord",
                                                           "cuEventQuery",
                                                           "cuEventSynchronize"});

// What the driver refuses to take back it keeps. The context has to be pushed for each such call.
constexpr auto kGivingBack = std::to_array<std::string_view>(
    {"cuDevicePrimaryCtxRelease", "cuCtxPushCurrent", "cuThreadExchangeStreamCaptureMode",
     "cuMemAddressFree", "cuMemRelease", "cuMemUnmap", "cuEventDestroy"});

struct Case {
    std::string_view function;
    CUresult result;

    std::string name() const {
        return std::string(function) + (result == CUDA_ERROR_OUT_OF_MEMORY ? "NoMemory" : "");
    }
};
std::ostream& operator<<(std::ostream& out, const Case& fault) {
    return out << fault.name();
}

// The program's own streams and memory. It calls the driver itself, in functions whose faults are
// not planted, because what is tested is the heap.
class Program {
   public:
    static constexpr std::size_t kSeen = std::size_t{1} << 20;

    explicit Program(const Emulator& emulator)
        : driver_(emulator.driver()), contexts_{emulator.context(0), emulator.context(1)} {
        for (std::size_t i = 0; i < streams_.size(); ++i) {
            enter(i == kForeign ? 1 : 0);
            EXPECT_EQ(driver_.cuStreamCreate(&streams_[i], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        }
        enter(0);
        void* memory = nullptr;
        EXPECT_EQ(driver_.cuMemHostAlloc(&memory, kSeen, 0), CUDA_SUCCESS);
        landing_ = {static_cast<unsigned char*>(memory), kSeen};
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program() {
        for (const CUstream stream : streams_) {
            EXPECT_EQ(driver_.cuStreamDestroy(stream), CUDA_SUCCESS);
        }
        EXPECT_EQ(driver_.cuMemFreeHost(landing_.data()), CUDA_SUCCESS);
        EXPECT_EQ(FROSTLINE_EMULATED(cuCtxSetCurrent)(nullptr), CUDA_SUCCESS);
    }

    static constexpr std::size_t kForeign = 2;
    CUstream stream(std::size_t number) const { return streams_[number]; }
    StreamHandle handle(std::size_t number) const {
        return reinterpret_cast<StreamHandle>(streams_[number]);
    }
    void fill(void* block, std::uint64_t size_bytes, unsigned char value, CUstream stream) const {
        enter(0);
        EXPECT_EQ(driver_.cuMemsetD8Async(device_address(block), value, size_bytes, stream),
                  CUDA_SUCCESS);
    }
    bool ends_with(const void* block, std::uint64_t size_bytes, unsigned char value,
                   CUstream stream) const {
        enter(0);
        EXPECT_EQ(driver_.cuMemcpyDtoHAsync(
                      landing_.data(), device_address(block) + size_bytes - kSeen, kSeen, stream),
                  CUDA_SUCCESS);
        EXPECT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
        return std::all_of(landing_.begin(), landing_.end(),
                           [&](unsigned char byte) { return byte == value; });
    }
    void enter(std::size_t device) const {
        EXPECT_EQ(FROSTLINE_EMULATED(cuCtxSetCurrent)(contexts_[device]->context()), CUDA_SUCCESS);
    }

   private:
    const CudaDriver& driver_;
    std::array<std::shared_ptr<CudaContext>, 2> contexts_;
    std::array<CUstream, 3> streams_{};
    std::span<unsigned char> landing_;
};

// One course through all that a heap does with a driver. Whatever fails is noted; the memory that
// was handed out must be sound.
class Course {
   public:
    Course(Program& program, DeviceHeap& heap) : program_(program), heap_(heap) {}

    void run() {
        std::array<Block, 4> blocks{};
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            blocks[i] = take(2 * kMiB, program_.stream(0), static_cast<unsigned char>(i + 1));
        }
        give(blocks[0]);
        give(blocks[2]);
        const Block window = take(4 * kMiB, program_.stream(0), 9);  // stitched
        give(blocks[1]);
        give(window);
        give(take_behind_work());
        const Block shared = take(kMiB, program_.stream(0), 6);
        for (const std::size_t number : {std::size_t{1}, Program::kForeign}) {
            if (shared.address == nullptr) break;
            note(heap_.record_stream(shared.address, program_.handle(number)));
        }
        give(shared);
        give(blocks[3]);
        const auto trimmed = heap_.trim(true);
        if (!trimmed) errors_.emplace_back(trimmed.error().message());
        give(take(7 * kMiB, nullptr, 7));
    }
    const std::vector<std::string>& errors() const { return errors_; }

   private:
    struct Block {
        void* address = nullptr;
        std::uint64_t size_bytes = 0;
        CUstream stream = nullptr;
        unsigned char value = 0;
    };

    Block take(std::uint64_t size_bytes, CUstream stream, unsigned char value) {
        const auto block = heap_.allocate(size_bytes, reinterpret_cast<StreamHandle>(stream));
        if (!block) {
            errors_.emplace_back(block.error().message());
            return {};
        }
        program_.fill(*block, size_bytes, value, stream);
        return {*block, size_bytes, stream, value};
    }
    void give(const Block& block) {
        if (block.address == nullptr) return;
        EXPECT_TRUE(program_.ends_with(block.address, block.size_bytes, block.value, block.stream))
            << "block of " << int{block.value};
        note(heap_.free(block.address));
    }
    // The memory that it gets is another stream's, which cannot be done with it before it has it
    // or waits for it.
    Block take_behind_work() {
        StreamGate gate;
        const Block block = take(4 * kMiB, program_.stream(0), 4);
        program_.enter(0);
        gate.shut(program_.stream(0));
        if (block.address != nullptr) note(heap_.free(block.address));
        const auto asked = [&] {
            const Emulator& emulator = Emulator::get();
            return emulator.calls("cuStreamWaitEvent") + emulator.calls("cuEventSynchronize");
        };
        const std::uint64_t before = asked();
        std::atomic<bool> has_it{false};
        std::thread opener([&] {
            while (asked() == before && !has_it) std::this_thread::yield();
            gate.open();
        });
        const Block next = take(6 * kMiB, program_.stream(1), 5);
        has_it = true;
        opener.join();
        return next;
    }
    void note(const Result<void>& result) {
        if (!result) errors_.emplace_back(result.error().message());
    }

    Program& program_;
    DeviceHeap& heap_;
    std::vector<std::string> errors_;
};

class DeviceHeapFaults : public testing::TestWithParam<Case> {
   protected:
    const char* function() const { return GetParam().function.data(); }

    static Result<std::unique_ptr<DeviceHeap>> make(const CudaDriver& driver) {
        FROSTLINE_TRY(auto context, CudaContext::create(driver, 0));
        return make_device_heap({.context = std::move(context),
                                 .capacity_bytes = 8 * kMiB,
                                 .peers = {1},
                                 .heap = {.stitch_from_bytes = kMiB}});
    }

    // Returns whether the fault struck.
    bool run_with_fault(EmulatedGpu& gpu, unsigned nth) {
        Program program(*gpu.operator->());
        gpu->plant_fault(function(), nth, GetParam().result);
        const std::uint64_t before = gpu->calls(function());
        const auto struck = [&] { return gpu->calls(function()) >= before + nth; };
        auto heap = make(gpu->driver());
        if (!heap) {
            EXPECT_TRUE(struck()) << heap.error().message();
            heap = make(gpu->driver());
        }
        if (!heap) {
            ADD_FAILURE() << "one fault, and for ever: " << heap.error().message();
            return false;
        }
        Course course(program, **heap);
        course.run();
        EXPECT_TRUE(course.errors().empty() || struck()) << course.errors().front();
        if (struck()) {
            Course again(program, **heap);
            again.run();
            EXPECT_TRUE(again.errors().empty())
                << "one fault, and for ever: " << again.errors().front();
        }
        EXPECT_EQ((*heap)->statistics().live, 0U);
        heap->reset();
        return struck();
    }

    void expect_well_used(EmulatedGpu& gpu) const {
        EXPECT_EQ(gpu->misuse(), "");
        if (std::find(kGivingBack.begin(), kGivingBack.end(), GetParam().function) ==
            kGivingBack.end()) {
            return;
        }
        gpu->restart("");
        const std::string reports = gpu->misuse();
        for (std::size_t at = 0; at < reports.size(); at = reports.find('\n', at) + 1) {
            EXPECT_EQ(reports.compare(at, 12, "leak-at-exit"), 0) << reports.substr(at);
        }
        gpu->clear_misuse();
    }
};

TEST_P(DeviceHeapFaults, EachEndsInAnErrorOrIsAbsorbed) {
    // Calls that are made hundreds of times would take minutes where code is instrumented.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const auto after = [](unsigned nth) { return nth < 12 ? nth + 1 : nth + 9; };
#else
    const auto after = [](unsigned nth) { return nth + 1; };
#endif
    for (unsigned nth = 1; !HasFailure(); nth = after(nth)) {
        SCOPED_TRACE(std::string(function()) + " number " + std::to_string(nth));
        EmulatedGpu gpu("memory=16MiB,devices=2,seed=" + std::to_string(nth));
        const bool struck = run_with_fault(gpu, nth);
        expect_well_used(gpu);
        if (struck) continue;
        EXPECT_GT(nth, 1U) << "it is never called";
        return;
    }
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const std::string_view function : kOfHeaps) {
        all.push_back({function, CUDA_ERROR_UNKNOWN});
        if (function.starts_with("cuMem")) all.push_back({function, CUDA_ERROR_OUT_OF_MEMORY});
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(Calls, DeviceHeapFaults, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace frostline
