// The compiled half of the Python package: Manager, with sizes and addresses as integers.
//
// Rule of the interpreter lock. Every call that may wait runs without it, because a worker that
// gives a buffer back needs it. Dropping keeps it: it never waits for anybody who does.
#include "bindings/byte_size.h"
#include "bindings/manager.h"
#include "bindings/python/exceptions.h"
#include "bindings/whole_file.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace py = pybind11;

namespace frostline::python {
namespace {

// `release` of an adopted buffer: calls the Python owner, which lets go of the buffer, and gives up
// the reference to it.
void release_owner(void* user, std::byte*, std::uint64_t) {
    const py::gil_scoped_acquire gil;
    const auto owner = py::reinterpret_steal<py::object>(static_cast<PyObject*>(user));
    try {
        owner();
    } catch (py::error_already_set& error) {
        error.discard_as_unraisable("frostline: giving a buffer back");
    }
}

// Destroys without the interpreter lock: the last reference to a manager waits for its workers, and
// they may be waiting for the lock to give a buffer back.
struct UnlockedDelete {
    template <class T>
    void operator()(T* object) const {
        const py::gil_scoped_release release;
        delete object;
    }
};
template <class T>
using Unlocked = std::unique_ptr<T, UnlockedDelete>;

// A tensor's bytes in DRAM, as a Python buffer; held there until this object goes.
class PinnedBuffer {
   public:
    explicit PinnedBuffer(PinnedTensor pinned) : pinned_(std::move(pinned)) {}
    py::buffer_info info() const {
        const auto bytes = pinned_.bytes();
        return {bytes.data(), 1, py::format_descriptor<unsigned char>::format(),
                static_cast<py::ssize_t>(bytes.size())};
    }

   private:
    PinnedTensor pinned_;
};

Unlocked<Manager> open_manager(const py::dict& options) {
    ManagerOptions parsed;
    for (const auto& [name, value] : options) {
        // Paths come as bytes, because they need not be text.
        const auto text = py::isinstance<py::bytes>(value) ? value.cast<std::string>()
                                                           : py::str(value).cast<std::string>();
        value_or_throw(set_option(parsed, name.cast<std::string>(), text));
    }
    const py::gil_scoped_release release;
    return Unlocked<Manager>(new Manager(value_or_throw(Manager::open(parsed))));
}

std::uint64_t adopt(Manager& manager, std::uintptr_t address, std::size_t size_bytes,
                    const py::object& owner, bool held) {
    // The reference is the manager's until release_owner() runs.
    PyObject* const reference = owner.ptr();
    Py_INCREF(reference);
    auto id = [&] {
        const py::gil_scoped_release release;
        return manager.adopt({reinterpret_cast<std::byte*>(address), size_bytes},
                             {release_owner, reference}, held);
    }();
    if (!id) Py_DECREF(reference);
    return value_or_throw(std::move(id)).packed();
}

// The figures are gathered without the interpreter lock: the engine's lock may be busy.
ManagerStats gather_stats(const Manager& manager) {
    const py::gil_scoped_release release;
    return manager.stats();
}

py::dict stats(const Manager& manager) {
    const ManagerStats now = gather_stats(manager);
    py::dict tiers;
    for (const TierStats& tier : now.tiers) {
        py::dict out;
        out["kind"] = tier.name;
        out["label"] = tier.label;
        out["access"] = tier.access;
        out["fallback"] =  // it may name a path
            py::reinterpret_steal<py::object>(PyUnicode_DecodeFSDefault(tier.fallback.c_str()));
        out["location"] =
            py::reinterpret_steal<py::object>(PyUnicode_DecodeFSDefault(tier.location.c_str()));
        out["budget_bytes"] = tier.budget_bytes;
        out["used_bytes"] = tier.used_bytes;
        out["peak_bytes"] = tier.peak_bytes;
        out["moved_in_bytes"] = tier.moved_in_bytes;
        out["moved_out_bytes"] = tier.moved_out_bytes;
        out["staging_bytes"] = tier.staging_bytes;
        out["open"] = tier.open;
        tiers[tier.name] = out;
    }
    constexpr double kNsPerSecond = 1e9;
    py::dict out;
    out["tiers"] = tiers;
    out["saved"] = now.stored;
    out["saved_bytes"] = now.stored_bytes;
    out["dropped"] = now.dropped;
    out["hits"] = now.hits;
    out["stalls"] = now.use_stalls + now.store_stalls;
    out["stall_s"] = static_cast<double>(now.use_stall_ns + now.store_stall_ns) / kNsPerSecond;
    out["use_stalls"] = now.use_stalls;
    out["use_stall_s"] = static_cast<double>(now.use_stall_ns) / kNsPerSecond;
    out["store_stalls"] = now.store_stalls;
    out["store_stall_s"] = static_cast<double>(now.store_stall_ns) / kNsPerSecond;
    out["moves"] = now.moves;
    out["free_moves"] = now.free_moves;
    out["failed_moves"] = now.failed_moves;
    out["direct_reads"] = now.direct_reads;
    out["prefetch_bytes"] = now.prefetch_bytes;
    return out;
}

py::dict timeline(const Manager& manager) {
    const ManagerStats now = gather_stats(manager);
    const std::vector<UsageSample> samples = [&] {
        const py::gil_scoped_release release;
        return manager.timeline();
    }();
    py::dict out;
    py::list times;
    for (const UsageSample& sample : samples) {
        times.append(static_cast<double>(sample.time_ns) / 1e9);
    }
    out["time_s"] = times;
    for (std::size_t i = 0; i < now.tiers.size(); ++i) {
        py::list used;
        for (const UsageSample& sample : samples) used.append(sample.used_bytes[i]);
        out[now.tiers[i].name] = used;
    }
    return out;
}

// Gives freed memory back to the system each time so much was moved away or given up. glibc keeps
// freed blocks below its mmap threshold resident, those of the program's temporaries included, and
// before 2.38 hardly ever fits another aligned block of the same size into them: without this, what
// was moved away would not show in the process's size. Faulting the pages in again costs time,
// hence not each time. Thread-safe.
class FreedMemory {
   public:
    explicit FreedMemory(std::size_t every_bytes) : every_bytes_(every_bytes) {}
    void add(std::size_t size_bytes) {
        if (freed_bytes_.fetch_add(size_bytes) + size_bytes < every_bytes_) return;
        freed_bytes_.store(0);
        (void)malloc_trim(0);
    }

   private:
    std::size_t every_bytes_;
    std::atomic<std::size_t> freed_bytes_{0};
};

void define_manager(py::module_& module) {
    using Id = std::uint64_t;
    const auto unlocked = py::call_guard<py::gil_scoped_release>();
    py::class_<Manager, Unlocked<Manager>>(module, "Manager")
        .def(py::init(&open_manager), py::arg("options"))
        .def("adopt", &adopt, py::arg("address"), py::arg("size_bytes"), py::arg("owner"),
             py::arg("held"))
        .def(
            "settle",
            [](Manager& manager, Id id) {
                value_or_throw(manager.settle(TensorId::from_packed(id)));
            },
            unlocked)
        .def(
            "pin",
            [](Manager& manager, Id id) {
                return Unlocked<PinnedBuffer>(new PinnedBuffer(
                    value_or_throw(manager.pin(TensorId::from_packed(id), Access::read))));
            },
            unlocked)
        .def(
            "get_into",
            [](Manager& manager, Id id, std::uintptr_t address, std::size_t size_bytes) {
                value_or_throw(manager.get(TensorId::from_packed(id),
                                           {reinterpret_cast<std::byte*>(address), size_bytes}));
            },
            unlocked)
        .def(
            "put_device",
            [](Manager& manager, std::uintptr_t address, std::size_t size_bytes,
               std::uintptr_t stream, bool keep_source) {
                return value_or_throw(manager.put_device(reinterpret_cast<const void*>(address),
                                                         size_bytes,
                                                         reinterpret_cast<void*>(stream),
                                                         keep_source ? DeviceSource::kept
                                                                     : DeviceSource::given_back))
                    .packed();
            },
            py::arg("address"), py::arg("size_bytes"), py::arg("stream"), py::arg("keep_source"),
            unlocked)
        .def(
            "get_device",
            [](Manager& manager, Id id, std::uintptr_t address, std::size_t size_bytes,
               std::uintptr_t stream) {
                value_or_throw(manager.get_device(TensorId::from_packed(id),
                                                  reinterpret_cast<void*>(address), size_bytes,
                                                  reinterpret_cast<void*>(stream)));
            },
            unlocked)
        .def(
            "release_source",
            [](Manager& manager, Id id, std::uintptr_t stream) {
                value_or_throw(manager.release_source(TensorId::from_packed(id),
                                                      reinterpret_cast<void*>(stream)));
            },
            unlocked)
        .def(
            "source_read",
            [](Manager& manager, Id id) {
                return value_or_throw(manager.source_read(TensorId::from_packed(id)));
            },
            unlocked)
        .def(
            "prefetch",
            [](Manager& manager, Id id) {
                value_or_throw(manager.prefetch(TensorId::from_packed(id)));
            },
            unlocked)
        .def("drop", [](Manager& manager,
                        Id id) { value_or_throw(manager.drop(TensorId::from_packed(id))); })
        .def(
            "step", [](Manager& manager) { value_or_throw(manager.step()); }, unlocked)
        .def(
            "close", [](Manager& manager) { value_or_throw(manager.close()); }, unlocked)
        .def("stats", &stats)
        .def("timeline", &timeline)
        .def(
            "trace", [](Manager& manager) { return value_or_throw(manager.trace()); }, unlocked)
        .def(
            "write_trace",
            [](Manager& manager, const std::string& path) {
                value_or_throw(
                    write_whole_file(path, value_or_throw(manager.trace()), "trace file"));
            },
            unlocked);
    py::class_<PinnedBuffer, Unlocked<PinnedBuffer>>(module, "PinnedBuffer", py::buffer_protocol())
        .def_buffer([](const PinnedBuffer& pinned) { return pinned.info(); });
}

}  // namespace
}  // namespace frostline::python

PYBIND11_MODULE(_core, module) {
    using namespace frostline::python;
    module.doc() = "The compiled half of frostline; not an interface of its own.";
    module.attr("__version__") = frostline::version();
    define_exceptions(module);
    define_manager(module);
    module.def("parse_byte_size", [](const std::string& text) {
        return value_or_throw(frostline::parse_byte_size(text));
    });
    module.def("format_byte_size", &frostline::format_byte_size);
    py::class_<FreedMemory>(module, "FreedMemory")
        .def(py::init<std::size_t>(), py::arg("every_bytes"))
        .def("add", &FreedMemory::add, py::arg("size_bytes"),
             py::call_guard<py::gil_scoped_release>());
}
