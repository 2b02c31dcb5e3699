// Says what is missing rather than training without what was asked for.
#include "bench/train/offload_store.h"

namespace frostline::train {

Result<std::unique_ptr<ActivationStore>> open_offload_store(const Gpu& gpu) {
    return Error(Errc::unsupported, 0,
                 "nothing can be offloaded from GPU {}: Frostline's manager has no tier of GPU "
                 "memory in this build; leave out --offload",
                 gpu.context()->device());
}

}  // namespace frostline::train
