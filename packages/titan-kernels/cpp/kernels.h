// The kernels of this process: what Python defined, and on which devices it is loaded.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "driver.h"

namespace titan_kernels {

enum class Kind { kInt32, kInt64, kFloat32, kBytes };

struct Parameter {
  Kind kind;
  std::size_t size;  // bytes
};

struct Geometry {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared;  // dynamic, bytes
};

// A kernel on one device; `function` is null before load().
struct Loaded {
  CUfunction function = nullptr;
  unsigned static_shared = 0;
  unsigned dynamic_limit = 0;  // the largest dynamic size that the driver was told to allow
};

struct Kernel {
  std::string unit, name;
  std::vector<Parameter> parameters;
  unsigned max_threads;
  std::vector<Loaded> devices;
};

// Devices are CUDA ordinals, as in PyTorch.  All methods may be called by any thread.
class Registry {
 public:
  static Registry& get();

  // Adds a kernel and returns its handle.
  int define(Kernel kernel);

  // What was defined under a handle; `devices` of it is not to be read.  Throws std::invalid_argument.
  const Kernel& kernel(int handle);

  // An attribute of a device.  Throws DriverError.
  int attribute(int device, CUdevice_attribute which);

  // Whether load() on the device needs the image of the kernel's unit.
  bool needs_image(int handle, int device);

  // Loads a kernel on a device; the image may be empty where none is needed.  Takes seconds where the
  // driver has to compile it.  Throws DriverError.
  void load(int handle, int device, unsigned static_shared, const std::string& image);

  // The kernel on the device, ready for a launch with this much dynamic shared memory, or null where it
  // is not loaded.  Sets `context` to the device's primary context.  Throws DriverError.
  CUfunction prepare(int handle, int device, unsigned shared, CUcontext* context);

 private:
  CUcontext primary_context(int device);
  // The loaded unit; the device's context is current.
  CUmodule module(const std::pair<int, std::string>& key, const std::string& image);

  std::mutex loading_;  // held while the driver loads, and before the other
  std::mutex mutex_;    // of what follows; held for moments, as launches need it
  std::deque<Kernel> kernels_;
  std::map<int, CUcontext> contexts_;
  std::map<std::pair<int, std::string>, CUmodule> modules_;
};

}  // namespace titan_kernels
