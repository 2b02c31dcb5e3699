// Which devices there are and what they are called. Every device is the same, but for its number.
#include <cstdio>
#include <cstring>

#include "tiers/emulator/exported.h"

using namespace frostline::emulator;

namespace {

constexpr const char* kName = "Frostline emulated device";

/// The UUID names the device by its number: the same in every process.
CUresult get_uuid(CUuuid* uuid, CUdevice device) {
    std::memset(uuid->bytes, 0, sizeof(uuid->bytes));
    std::memcpy(uuid->bytes, "frostline", 9);
    uuid->bytes[15] = static_cast<char>(device);
    return CUDA_SUCCESS;
}

}  // namespace

FROSTLINE_EXPORTED CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (device == nullptr) return refuse_value(call, "device is null");
        if (find_device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        *device = ordinal;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuDeviceGetCount(int* count) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (count == nullptr) return refuse_value(call, "count is null");
        *count = static_cast<int>(driver().devices.size());
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuDeviceGetName(char* name, int length, CUdevice device) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (name == nullptr || length <= 0) return refuse_value(call, "no room for a name");
        if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        std::snprintf(name, static_cast<std::size_t>(length), "%s", kName);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuDeviceTotalMem(std::size_t* bytes, CUdevice device) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (bytes == nullptr) return refuse_value(call, "bytes is null");
        const Device* const found = find_device(device);
        if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        *bytes = found->capacity_bytes;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (uuid == nullptr) return refuse_value(call, "uuid is null");
        if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        return get_uuid(uuid, device);
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (id == nullptr || length <= 0) return refuse_value(call, "no room for an id");
        if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (device == nullptr || id == nullptr) return refuse_value(call, "null argument");
        unsigned domain = 0;
        unsigned bus = 0;
        unsigned slot = 0;
        if (std::sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3 &&
            std::sscanf(id, "%x:%x", &bus, &slot) != 2) {
            return refuse_value(call, "not a PCI address");
        }
        const int ordinal = static_cast<int>(bus) - 1;
        if (domain != 0 || slot != 0 || find_device(ordinal) == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        *device = ordinal;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuDeviceCanAccessPeer(int* can, CUdevice device,
                                                          CUdevice peer) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (can == nullptr) return refuse_value(call, "the answer's place is null");
        if (find_device(device) == nullptr || find_device(peer) == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        *can = driver().settings.peer && device != peer ? 1 : 0;
        return CUDA_SUCCESS;
    });
}

FROSTLINE_EXPORTED CUresult CUDAAPI cuDeviceGetP2PAttribute(int* value,
                                                            CUdevice_P2PAttribute attribute,
                                                            CUdevice device, CUdevice peer) {
    static Function& self = Function::named(__func__, Needs::driver, InCapture::allowed);
    return self.call([&](Call& call) -> CUresult {
        if (value == nullptr) return refuse_value(call, "value is null");
        if (find_device(device) == nullptr || find_device(peer) == nullptr || device == peer) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED && driver().settings.peer;
        return CUDA_SUCCESS;
    });
}
