// Proves that whichever call of the driver fails, and whichever time, a heap of GPU memory ends in
// an error or does without it: nothing is misused, no content is lost, and the same heap works
// afterwards.
#include "tests/allocator/device_heap_fixture.h"
#include "tiers/cuda_functions.h"

#include <array>
#include <optional>
#include <ostream>
#include <string_view>

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

// The program's own streams and memory; made before anything may fail, and ended after.
struct Program {
    explicit Program(const Emulator& emulator)
        : context(emulator.context()),
          foreign_context(emulator.context(1)),
          first(*CudaStream::create(context)),
          second(*CudaStream::create(context)),
          foreign(*CudaStream::create(foreign_context)),
          landing(context, std::size_t{1} << 20) {}

    std::shared_ptr<CudaContext> context;
    std::shared_ptr<CudaContext> foreign_context;
    CudaStream first;
    CudaStream second;
    CudaStream foreign;
    HostLanding landing;
};

// Calls the driver as a program does, which is not what is tested: without the library.
class ProgramScope {
   public:
    explicit ProgramScope(const CudaContext& context) {
        EXPECT_EQ(FROSTLINE_EMULATED(cuCtxSetCurrent)(context.context()), CUDA_SUCCESS);
    }
};

class DeviceHeapFaults : public testing::TestWithParam<Case> {
   protected:
    // One course through all that a heap does with a driver. Whatever fails is noted; the memory
    // that was handed out must be sound.
    class Course {
       public:
        Course(Program& program, DeviceHeap& heap) : program_(program), heap_(heap) {}

        void run() {
            const StreamHandle one = handle_of(program_.first);
            const StreamHandle two = handle_of(program_.second);
            std::array<void*, 4> blocks{};
            for (std::size_t i = 0; i < blocks.size(); ++i) {
                blocks[i] = take(2 * kMiB, one, static_cast<unsigned char>(i + 1));
            }
            give(blocks[0], 1);
            give(blocks[2], 3);
            void* const window = take(4 * kMiB, one, 9);  // stitched
            give(blocks[1], 2);
            give(window, 9);
            void* const other = take(6 * kMiB, two, 5);  // behind the first stream
            give(other, 5);
            void* const shared = take(kMiB, one, 6);
            if (shared != nullptr) {
                note(heap_.record_stream(shared, two));
                note(heap_.record_stream(shared, handle_of(program_.foreign)));
            }
            give(shared, 6);
            give(blocks[3], 4);
            const auto trimmed = heap_.trim(true);
            if (!trimmed) errors_.emplace_back(trimmed.error().message());
            give(take(7 * kMiB, 0, 7), 7);
        }
        const std::vector<std::string>& errors() const { return errors_; }

       private:
        void* take(std::uint64_t size_bytes, StreamHandle stream, unsigned char value) {
            const auto block = heap_.allocate(size_bytes, stream);
            if (!block) {
                errors_.emplace_back(block.error().message());
                return nullptr;
            }
            const ProgramScope scope(*program_.context);
            const auto queue = reinterpret_cast<CUstream>(stream);
            const CudaDriver& driver = program_.context->driver();
            EXPECT_EQ(driver.cuMemsetD8Async(device_address(*block), value, size_bytes, queue),
                      CUDA_SUCCESS);
            streams_.emplace_back(*block, queue);
            sizes_.push_back(size_bytes);
            return *block;
        }
        void give(void* block, unsigned char value) {
            if (block == nullptr) return;
            const std::size_t at = static_cast<std::size_t>(
                std::find_if(streams_.rbegin(), streams_.rend(),
                             [&](const auto& each) { return each.first == block; })
                    .base() -
                streams_.begin() - 1);
            const CUstream queue = streams_[at].second;
            const CudaDriver& driver = program_.context->driver();
            {
                const ProgramScope scope(*program_.context);
                const std::uint64_t last = sizes_[at] - program_.landing.bytes().size();
                EXPECT_EQ(driver.cuMemcpyDtoHAsync(program_.landing.bytes().data(),
                                                   device_address(block) + last,
                                                   program_.landing.bytes().size(), queue),
                          CUDA_SUCCESS);
                EXPECT_EQ(driver.cuStreamSynchronize(queue), CUDA_SUCCESS);
            }
            const auto bytes = program_.landing.bytes();
            EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(),
                                    [&](unsigned char byte) { return byte == value; }))
                << "block of " << int{value};
            note(heap_.free(block));
        }
        void note(const Result<void>& result) {
            if (!result) errors_.emplace_back(result.error().message());
        }

        Program& program_;
        DeviceHeap& heap_;
        std::vector<std::pair<void*, CUstream>> streams_;
        std::vector<std::uint64_t> sizes_;
        std::vector<std::string> errors_;
    };

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
    for (unsigned nth = 1; !HasFailure(); ++nth) {
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
