// The classes, and the translation of the C++ exception that carries an Error to Python.
#include "bindings/python/exceptions.h"

#include <cstring>
#include <exception>
#include <string>

namespace py = pybind11;

namespace frostline::python {
namespace {

// Thrown without the interpreter lock; becomes a Python exception where pybind11 has it again.
struct Raised : std::exception {
    explicit Raised(const Error& what) : error(what) {}
    const char* what() const noexcept override { return error.message(); }
    Error error;
};

// Never freed: the classes live as long as the interpreter.
struct Classes {
    PyObject* error = nullptr;
    PyObject* invalid_argument = nullptr;
    PyObject* no_space = nullptr;
};
Classes classes;

PyObject* class_of(Errc code) {
    if (code == Errc::invalid_argument) return classes.invalid_argument;
    return code == Errc::no_space ? classes.no_space : classes.error;
}

void translate(std::exception_ptr thrown) {  // NOLINT(performance-unnecessary-value-param)
    try {
        if (thrown) std::rethrow_exception(thrown);
    } catch (const Raised& raised) {
        const Error& error = raised.error;
        const auto type = py::reinterpret_borrow<py::object>(class_of(error.code()));
        // A message may hold a path that is not text, or end in the middle of a letter.
        const auto message = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
            error.message(), static_cast<py::ssize_t>(std::strlen(error.message())), "replace"));
        py::object instance = type(message);
        instance.attr("code") = std::string(name(error.code()));
        PyErr_SetObject(type.ptr(), instance.ptr());
    }
}

PyObject* define(py::module_& module, const char* name, const char* doc, const py::object& bases) {
    const std::string qualified = std::string("frostline.") + name;
    PyObject* const type = PyErr_NewExceptionWithDoc(qualified.c_str(), doc, bases.ptr(), nullptr);
    if (type == nullptr) throw py::error_already_set();
    module.attr(name) = py::reinterpret_borrow<py::object>(type);
    return type;
}

}  // namespace

void define_exceptions(py::module_& module) {
    const auto runtime_error = py::reinterpret_borrow<py::object>(PyExc_RuntimeError);
    classes.error = define(
        module, "Error", "A failure of Frostline; `code` is one word for its kind.", runtime_error);
    const auto error = py::reinterpret_borrow<py::object>(classes.error);
    classes.invalid_argument =
        define(module, "InvalidArgument", "An option or argument that cannot be used.",
               py::make_tuple(error, py::reinterpret_borrow<py::object>(PyExc_ValueError)));
    classes.no_space = define(module, "NoSpace", "No tier has room.", error);
    py::register_exception_translator(&translate);
}

void raise(const Error& error) {
    throw Raised(error);
}

}  // namespace frostline::python
