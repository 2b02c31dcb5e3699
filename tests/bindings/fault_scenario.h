// A fixed course of all that a manager with device memory does, in which any call of the driver may
// be made to fail. What fails is called again: a fault that strikes once may be met once. The
// scenario itself calls only such functions of the driver as the library never does.
#pragma once

#include "bindings/manager.h"
#include "tests/bindings/framework.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace frostline {

class FaultScenario {
   public:
    static constexpr std::uint64_t kBytes = std::uint64_t{48} << 10;

    /// `on_device`: the manager has a device tier; else the host reaches what is pinned.
    explicit FaultScenario(bool on_device);
    FaultScenario(const FaultScenario&) = delete;
    FaultScenario& operator=(const FaultScenario&) = delete;
    ~FaultScenario();

    /// With the manager open. Ends with no tensor and no pin left.
    void run(Manager& manager);
    /// What went wrong, once for each call; empty if nothing did.
    const std::vector<std::string>& errors() const { return errors_; }
    /// What never went well, however often it was tried.
    const std::vector<std::string>& given_up() const { return given_up_; }
    /// Whether the thread still has the context and the capture mode that it had.
    void expect_own_context();

   private:
    struct Tensor {
        TensorId id;
        unsigned char value;
    };
    struct Memory {
        Framework* device;
        CUstream stream;
        CUdeviceptr address;
    };

    void store_all(Manager& manager);
    void allocate(Manager& manager, unsigned char value);
    void put(Manager& manager, unsigned char value);
    void put_device(Manager& manager, const Memory& from, unsigned char value, DeviceSource use);
    void rewrite(Manager& manager, Tensor& tensor, unsigned char value);
    void look_at(Manager& manager, const Tensor& tensor);
    void get(Manager& manager, const Tensor& tensor);
    void get_device(Manager& manager, const Tensor& tensor, const Memory& to);
    void drop_all(Manager& manager);

    /// Through a stream where the host cannot; then the pin ends with its work.
    void write(PinnedTensor pin, const Memory& by, unsigned char value) const;
    /// Calls until it succeeds, and says whether it ever did.
    bool in_the_end(const char* what, const std::function<Result<void>()>& call);
    static void fill(const Memory& memory, CUdeviceptr address, unsigned char value);
    void expect_holds(const Memory& memory, CUdeviceptr address, unsigned char value,
                      const char* what);

    const bool on_device_;
    Framework first_{0};
    Framework second_{1};
    std::array<Memory, 3> memories_;
    std::vector<unsigned char> host_;
    std::vector<Tensor> tensors_;
    std::vector<std::string> errors_;
    std::vector<std::string> given_up_;
};

}  // namespace frostline
