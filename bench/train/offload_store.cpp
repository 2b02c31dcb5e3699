// Says what is missing rather than training without what was asked for.
#include "bench/train/offload_store.h"

namespace frostline::train {

Result<std::unique_ptr<ActivationStore>> open_offload_store(const Gpu& gpu) {
    return Error(Errc::unsupported, 0,
                 "nothing can be offloaded from GPU {}: this build of the trainer has no store on "
                 "Frostline's manager; leave out --offload",
                 gpu.context()->device());
}

}  // namespace frostline::train
