#include "arguments.h"

#include <climits>
#include <cstring>
#include <stdexcept>

namespace titan_kernels {
namespace {

PyTypeObject* packed_type = nullptr;

PyObject* interned(const char* name) {
  PyObject* string = PyUnicode_InternFromString(name);
  if (!string) throw PythonError();
  return string;
}

// Owns a reference for the length of a scope.
class Owned {
 public:
  explicit Owned(PyObject* object) : object_(object) {
    if (!object_) throw PythonError();
  }
  ~Owned() { Py_DECREF(object_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  PyObject* get() const { return object_; }

 private:
  PyObject* object_;
};

template <class T>
void write(unsigned char* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

long long as_integer(PyObject* value) {
  const long long result = PyLong_AsLongLong(value);
  if (result != -1 || !PyErr_Occurred()) return result;
  PyErr_Clear();
  throw std::invalid_argument("the number does not fit in 64 bits");
}

std::string type_name(PyObject* value) { return Py_TYPE(value)->tp_name; }

// A null address is that of a tensor without elements; else of a wrapper, such as a DTensor.
void require_empty(PyObject* tensor) {
  const Owned elements(PyObject_CallMethod(tensor, "numel", nullptr));
  const long long count = PyLong_AsLongLong(elements.get());
  if (PyErr_Occurred()) throw PythonError();
  if (count == 0) return;
  throw std::invalid_argument("the tensor has no memory of its own: pass the one that it wraps");
}

// Asks by method, so that subclasses and anything else that behaves like a tensor will do.
unsigned long long address(PyObject* tensor, int device) {
  static PyObject* const get_device = interned("get_device");
  static PyObject* const data_ptr = interned("data_ptr");
  PyObject* where = PyObject_CallMethodNoArgs(tensor, get_device);
  if (!where && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    throw std::invalid_argument(type_name(tensor) + " is no tensor, number, Packed or None");
  }
  const Owned owned_where(where);
  const long ordinal = PyLong_AsLong(where);
  if (ordinal == -1 && PyErr_Occurred()) throw PythonError();
  if (ordinal != device) {
    throw std::invalid_argument("the tensor is on " +
                                (ordinal < 0 ? "the CPU" : "cuda:" + std::to_string(ordinal)) +
                                ", the first one on cuda:" + std::to_string(device));
  }
  const Owned pointer(PyObject_CallMethodNoArgs(tensor, data_ptr));
  const unsigned long long result = PyLong_AsUnsignedLongLong(pointer.get());
  if (result == 0) require_empty(tensor);
  else if (PyErr_Occurred()) throw PythonError();
  return result;
}

void write_number(const Parameter& parameter, PyObject* value, unsigned char* to) {
  if (parameter.kind == Kind::kFloat32) {
    write(to, static_cast<float>(PyFloat_Check(value) ? PyFloat_AS_DOUBLE(value)
                                                      : static_cast<double>(as_integer(value))));
    return;
  }
  if (PyFloat_Check(value)) throw std::invalid_argument("a float for an integer parameter");
  const long long number = as_integer(value);
  if (parameter.kind == Kind::kInt32 && (number < INT_MIN || number > INT_MAX)) {
    throw std::invalid_argument(std::to_string(number) + " does not fit in the kernel's 32-bit parameter");
  }
  if (parameter.kind == Kind::kInt32) write(to, static_cast<int>(number));
  else write(to, number);
}

// What an Array of numbers of 32 bits holds: one float makes all of them floats.
Kind kind_of_numbers(PyObject* items) {
  Kind kind = Kind::kInt32;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items, i);
    if (PyFloat_Check(item)) kind = Kind::kFloat32;
    else if (!PyLong_Check(item)) throw std::invalid_argument(type_name(item) + " for a number");
  }
  return kind;
}

// An element of an Array of 64 bits each: an address or an i64.
void write_element(PyObject* value, int device, unsigned char* to) {
  if (PyLong_Check(value)) {
    write_number({Kind::kInt64, sizeof(long long)}, value, to);
  } else {
    write(to, value == Py_None ? 0ull : address(value, device));
  }
}

void write_packed(std::size_t bytes, PyObject* packed, int device, unsigned char* to) {
  static PyObject* const values_name = interned("values");
  static PyObject* const capacity_name = interned("capacity");
  const Owned values(PyObject_GetAttr(packed, values_name));
  const Owned capacity(PyObject_GetAttr(packed, capacity_name));
  const Owned items(PySequence_Fast(values.get(), "Packed.values is no sequence"));
  const std::size_t places = static_cast<std::size_t>(as_integer(capacity.get()));
  const std::size_t count = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items.get()));
  const std::size_t size = places ? bytes / places : 0;
  if (size * places != bytes || (size != 4 && size != 8) || count > places) {
    throw std::invalid_argument("Packed with " + std::to_string(count) + " values and capacity " +
                                std::to_string(places) + " for an Array of " + std::to_string(bytes) +
                                " bytes");
  }
  std::memset(to, 0, bytes);
  const Kind kind = size == sizeof(float) ? kind_of_numbers(items.get()) : Kind::kInt64;
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), static_cast<Py_ssize_t>(i));
    if (kind == Kind::kInt64) write_element(item, device, to + i * size);
    else write_number({kind, size}, item, to + i * size);
  }
}

}  // namespace

void register_packed(PyObject* type) {
  Py_INCREF(type);
  packed_type = reinterpret_cast<PyTypeObject*>(type);
}

void Arguments::pack(const Parameter& parameter, PyObject* value, int device, unsigned char* to) {
  const bool number = PyLong_Check(value) || PyFloat_Check(value);
  if (parameter.kind != Kind::kBytes) {
    if (!number) throw std::invalid_argument(type_name(value) + " for a number");
    write_number(parameter, value, to);
  } else if (Py_TYPE(value) == packed_type) {
    write_packed(parameter.size, value, device, to);
  } else if (number || parameter.size != sizeof(CUdeviceptr)) {
    throw std::invalid_argument(type_name(value) + (number ? " for a pointer" : " for an Array"));
  } else {
    write(to, value == Py_None ? 0ull : address(value, device));
  }
}

Arguments::Arguments(const Kernel& kernel, PyObject* values, int device) {
  const std::size_t count = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(values));
  if (count != kernel.parameters.size()) {
    throw std::invalid_argument(std::to_string(count) + " arguments for " +
                                std::to_string(kernel.parameters.size()) + " parameters");
  }
  unsigned char* to = bytes_.data();
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& parameter = kernel.parameters[i];
    try {
      pack(parameter, PySequence_Fast_GET_ITEM(values, static_cast<Py_ssize_t>(i)), device, to);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument("argument " + std::to_string(i) + ": " + error.what());
    }
    pointers_[i] = to;
    to += (parameter.size + kSlot - 1) / kSlot * kSlot;
  }
}

}  // namespace titan_kernels
