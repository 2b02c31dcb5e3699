// The heaps that the tests share, compiled once.
#include "tests/allocator/heap/recorded_backing.h"

#include "allocator/heap/heap_life.h"

namespace frostline {

template class Heap<RecordedDevice>;
template class Heap<RecordedHost>;

}  // namespace frostline
