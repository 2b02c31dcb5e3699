// A program that does anything at random that a program may do with a manager and two devices, and
// knows at every moment which bytes it must find. It orders its own streams as it has to; whatever
// else goes wrong is the library's fault.
#pragma once

#include "bindings/manager.h"
#include "tests/bindings/known_bytes.h"
#include "tests/bindings/program_streams.h"
#include "tests/tiers/emulated_gpu.h"

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace frostline {

/// For one thread; several programs may share a manager.
class DeviceProgram {
   public:
    static constexpr std::size_t kLargestBytes = std::size_t{64} << 10;

    /// `on_device`: the manager has a device tier, on device 0.
    DeviceProgram(Manager& manager, const Emulator& emulator, std::uint64_t seed, bool on_device);
    DeviceProgram(const DeviceProgram&) = delete;
    DeviceProgram& operator=(const DeviceProgram&) = delete;
    /// Waits for its own work and frees what is its own; tensors stay with the manager.
    ~DeviceProgram();

    void run(std::size_t operations);
    /// Lets go of all pins, and looks at every byte once more.
    void check_all();
    void drop_all();

   private:
    struct Tensor {
        TensorId id;
        std::size_t size_bytes = 0;
        Content content;
        StreamUse use;
    };
    /// Memory of the program's own, as a framework has.
    struct Buffer {
        CUdeviceptr address = 0;
        std::size_t first_stream = 0;  // of its device
        StreamUse use;
        std::optional<TensorId> kept_for;  // put() may still be reading it
        std::size_t kept_stream = 0;
    };
    struct Held {
        PinnedTensor pin;
        std::size_t stream = 0;
    };

    void step();
    void make();
    void rewrite(Tensor& tensor);
    void look_at(Tensor& tensor);
    void put_host();
    void get_host(const Tensor& tensor);
    void put_device();
    void get_device(Tensor& tensor);
    void drop(std::size_t index);
    void hint(const Tensor& tensor);
    void end_held();

    void write(Tensor& tensor, PinnedTensor pin);
    void let_go(PinnedTensor pin, std::size_t stream);
    void ready_to_write(Buffer& buffer, std::size_t stream);
    Tensor fresh();
    Tensor& any();
    std::size_t any_stream(std::size_t first) {
        return first + between(random_, 0, ProgramStreams::kOfEach - 1);
    }
    bool one_in(std::uint64_t times) { return between(random_, 1, times) == 1; }
    /// Whether it went well; being full is an excuse.
    template <class Done>
    static bool went_well(const Done& done, const char* what);

    Manager& manager_;
    const CudaDriver& driver_;
    std::mt19937_64 random_;
    const bool on_device_;
    ProgramStreams streams_;
    KnownBytes known_;
    Readbacks readbacks_;
    std::array<Buffer, 6> buffers_;
    std::vector<Tensor> tensors_;
    std::vector<Held> held_;
    std::vector<std::byte> scratch_;
};

}  // namespace frostline
