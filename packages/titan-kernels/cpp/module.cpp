// The Python module titan_kernels._driver.  Importing it opens no driver.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>

#include "arguments.h"
#include "driver.h"
#include "kernels.h"

namespace py = pybind11;

// The archive of images, put into the extension by the assembler.
asm(".pushsection .rodata\n"
    ".balign 16\n"
    "titan_archive_begin: .incbin \"" TITAN_ARCHIVE "\"\n"
    "titan_archive_end:\n"
    ".popsection\n");
extern "C" __attribute__((visibility("hidden"))) const char titan_archive_begin[], titan_archive_end[];

namespace titan_kernels {
namespace {

PyObject* driver_error = nullptr;

Parameter parse_parameter(const std::string& kind) {
  if (kind == "i32") return {Kind::kInt32, 4};
  if (kind == "i64") return {Kind::kInt64, 8};
  if (kind == "f32") return {Kind::kFloat32, 4};
  if (kind.rfind("bytes:", 0) == 0) return {Kind::kBytes, std::stoul(kind.substr(6))};
  throw std::invalid_argument("parameter kind (" + kind + ") is unknown");
}

int define(const std::string& unit, const std::string& name, const std::vector<std::string>& kinds,
           unsigned max_threads) {
  Kernel kernel{unit, name, {}, max_threads, {}};
  std::size_t bytes = 0;
  for (const std::string& kind : kinds) {
    kernel.parameters.push_back(parse_parameter(kind));
    bytes += kernel.parameters.back().size;
  }
  if (kinds.size() > Arguments::kMaxParameters || bytes > Arguments::kMaxBytes) {
    throw std::invalid_argument("kernel " + name + ": more than 64 parameters or 4096 bytes of them");
  }
  return Registry::get().define(std::move(kernel));
}

// The GIL is not held meanwhile: loading may wait for the GPU, and that for another thread's launch.
void load(int handle, int device, unsigned static_shared, const std::function<py::bytes()>& read_image) {
  const std::string image = Registry::get().needs_image(handle, device) ? std::string(read_image()) : "";
  const py::gil_scoped_release release;
  Registry::get().load(handle, device, static_shared, image);
}

long long integer(PyObject* value) {
  const long long result = PyLong_AsLongLong(value);
  if (result == -1 && PyErr_Occurred()) throw PythonError();
  return result;
}

void read_size(PyObject* size, const char* what, const long long (&limits)[3], unsigned (&to)[3]) {
  const bool tuple = PyTuple_Check(size) && PyTuple_GET_SIZE(size) == 3;
  for (int i = 0; i < 3; ++i) {
    const long long value = tuple ? integer(PyTuple_GET_ITEM(size, i)) : i == 0 ? integer(size) : 1;
    if (value < 1 || value > limits[i]) {
      throw std::invalid_argument(std::string(what) + "." + "xyz"[i] + " (" + std::to_string(value) +
                                  ") must lie between 1 and " + std::to_string(limits[i]));
    }
    to[i] = static_cast<unsigned>(value);
  }
}

// Limits: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
Geometry read_geometry(const Kernel& kernel, PyObject* grid, PyObject* block, PyObject* shared) {
  Geometry geometry;
  read_size(grid, "grid", {2147483647, 65535, 65535}, geometry.grid);
  read_size(block, "block", {1024, 1024, 64}, geometry.block);
  const unsigned threads = geometry.block[0] * geometry.block[1] * geometry.block[2];
  if (threads > kernel.max_threads) {
    throw std::invalid_argument("block of " + std::to_string(threads) + " threads: the kernel is built for " +
                                std::to_string(kernel.max_threads));
  }
  const long long bytes = integer(shared);
  if (bytes < 0 || bytes > 2147483647) {
    throw std::invalid_argument("shared (" + std::to_string(bytes) + ") must lie between 0 and 2147483647");
  }
  geometry.shared = static_cast<unsigned>(bytes);
  return geometry;
}

// The GIL is not held meanwhile: the driver waits where its queue is full.
void launch_kernel(CUfunction function, const Geometry& g, CUstream stream, void** arguments,
                   CUcontext context) {
  const Driver& driver = Driver::get();
  CUresult result;
  {
    const py::gil_scoped_release release;
    const ContextGuard current(driver, context);
    result = driver.cuLaunchKernel(function, g.grid[0], g.grid[1], g.grid[2], g.block[0], g.block[1],
                                   g.block[2], g.shared, stream, arguments, nullptr);
  }
  driver.check(result, "cuLaunchKernel");
}

bool launch(PyObject* const* args) {
  const int handle = static_cast<int>(integer(args[0]));
  const int device = static_cast<int>(integer(args[1]));
  const auto stream = reinterpret_cast<CUstream>(static_cast<std::uintptr_t>(integer(args[2])));
  const Kernel& kernel = Registry::get().kernel(handle);
  const Geometry geometry = read_geometry(kernel, args[3], args[4], args[5]);
  if (!PyList_Check(args[6]) && !PyTuple_Check(args[6])) {
    throw std::invalid_argument("the arguments must be a list or a tuple");
  }
  Arguments arguments(kernel, args[6], device);
  CUcontext context = nullptr;
  const CUfunction function = Registry::get().prepare(handle, device, geometry.shared, &context);
  if (function) launch_kernel(function, geometry, stream, arguments.pointers(), context);
  return function != nullptr;
}

// Called directly by the interpreter: pybind11's dispatch would cost as much as the rest.
PyObject* launch_entry(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 7) {
    PyErr_SetString(PyExc_TypeError, "launch(handle, device, stream, grid, block, shared, args)");
    return nullptr;
  }
  try {
    return PyBool_FromLong(launch(args));
  } catch (const PythonError&) {
  } catch (const DriverError& error) {
    PyErr_SetString(driver_error, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  }
  return nullptr;
}

PyMethodDef launch_method[] = {
    {"launch", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(launch_entry)), METH_FASTCALL,
     "launch(handle, device, stream, grid, block, shared, args) -> bool\n\n"
     "False where the kernel is not loaded on the device."},
    {nullptr, nullptr, 0, nullptr}};

std::pair<int, int> capability(int device) {
  Registry& registry = Registry::get();
  return {registry.attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
          registry.attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)};
}

int shared_limit(int device) {
  return Registry::get().attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
}

int version() {
  int value = 0;
  Driver::get().check(Driver::get().cuDriverGetVersion(&value), "cuDriverGetVersion");
  return value;
}

}  // namespace
}  // namespace titan_kernels

PYBIND11_MODULE(_driver, m) {
  using namespace titan_kernels;
  m.doc() = "Loads embedded kernel images and launches them through the CUDA driver.";
  driver_error = py::register_exception<DriverError>(m, "DriverError", PyExc_RuntimeError).ptr();
  m.def("archive", [] {
    return py::memoryview::from_memory(titan_archive_begin, titan_archive_end - titan_archive_begin);
  });
  m.def("define", &define);
  m.def("load", &load);
  m.def("capability", &capability);
  m.def("shared_limit", &shared_limit);
  m.def("version", &version);
  m.def("register_packed", [](const py::type& type) { register_packed(type.ptr()); });
  PyModule_AddFunctions(m.ptr(), launch_method);
}
