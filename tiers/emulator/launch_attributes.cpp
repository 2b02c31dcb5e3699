// An attribute that is not in the table of those taken is refused.
#include "tiers/emulator/launch_attributes.h"

#include <cstdio>

namespace frostline::emulator {
namespace {

// Stream serialisation is let in although a later kernel never starts early here: it is a
// permission to overlap, which a device need not use.
bool is_hint(CUlaunchAttributeID id) {
    switch (id) {
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
            return true;
        default:
            return false;
    }
}

const char* name_of(CUlaunchAttributeID id) {
    switch (id) {
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
            return "synchronization policy";
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
            return "programmatic event";
        default:
            return "this attribute";
    }
}

bool cluster_divides_grid(const CUlaunchAttributeValue& value, const FrostlineDim3& grid) {
    const auto& cluster = value.clusterDim;
    if (cluster.x == 0 || cluster.y == 0 || cluster.z == 0) return false;
    constexpr unsigned kMaxCluster = 8;
    const bool small = cluster.x <= kMaxCluster && cluster.y <= kMaxCluster &&
                       cluster.z <= kMaxCluster && cluster.x * cluster.y * cluster.z <= kMaxCluster;
    return small && grid.x % cluster.x == 0 && grid.y % cluster.y == 0 && grid.z % cluster.z == 0;
}

CUresult check(const LaunchRequest& request, const CUlaunchAttribute& attribute) {
    if (is_hint(attribute.id)) return CUDA_SUCCESS;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
        const bool fits = attribute.value.cooperative == 0 || fits_at_once(request);
        return fits ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
        return cluster_divides_grid(attribute.value, request.shape.grid)
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    std::fprintf(stderr, "frostline emulator: launch attribute %d (%s) is not supported\n",
                 static_cast<int>(attribute.id), name_of(attribute.id));
    return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

CUresult check_launch_attributes(const LaunchRequest& request,
                                 std::span<const CUlaunchAttribute> attributes) {
    for (const CUlaunchAttribute& attribute : attributes) {
        const CUresult result = check(request, attribute);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

}  // namespace frostline::emulator
