// Python arguments of a launch, as the driver wants them: an array of pointers to their bytes.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <array>
#include <cstddef>

#include "kernels.h"

namespace titan_kernels {

// A Python exception is set; thrown through C++ up to the module's functions.
struct PythonError {};

// The type of titan_kernels.launch.Packed, known once Python has registered it.
void register_packed(PyObject* type);

class Arguments {
 public:
  static constexpr std::size_t kMaxParameters = 64;
  static constexpr std::size_t kMaxBytes = 4096;  // CUDA's limit before 12.1 and on Volta
  static constexpr std::size_t kSlot = 8;         // every parameter starts at a multiple of this

  // Packs `values` (a list or tuple) for the kernel; all tensors must lie on `device`.
  // Throws std::invalid_argument naming the argument, or PythonError.
  Arguments(const Kernel& kernel, PyObject* values, int device);

  void** pointers() { return pointers_.data(); }

 private:
  void pack(const Parameter& parameter, PyObject* value, int device, unsigned char* to);

  alignas(16) std::array<unsigned char, kMaxBytes + kSlot * kMaxParameters> bytes_;
  std::array<void*, kMaxParameters> pointers_;
};

}  // namespace titan_kernels
