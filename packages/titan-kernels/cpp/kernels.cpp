#include "kernels.h"

#include <stdexcept>

namespace titan_kernels {
namespace {

// What every launch may use without asking, static and dynamic together.
constexpr unsigned kUsualShared = 48 * 1024;

// Loading is forbidden while some thread captures a CUDA graph in the default mode, though it does
// nothing to the captured stream; so it is allowed for this thread, for as long as it takes.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) {
    driver_.check(driver_.cuThreadExchangeStreamCaptureMode(&mode_), "cuThreadExchangeStreamCaptureMode");
  }
  ~RelaxedCapture() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

CUmodule load_module(const Driver& driver, const std::string& image) {
  std::string log(8192, '\0');
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  CUmodule module = nullptr;
  const CUresult result = driver.cuModuleLoadDataEx(&module, image.c_str(), 2, options, values);
  driver.check(result, "cuModuleLoadDataEx", std::string(log.c_str()));
  return module;
}

}  // namespace

Registry& Registry::get() {
  // Never destroyed: the driver may be gone before the process' last static object.
  static Registry& registry = *new Registry;
  return registry;
}

int Registry::define(Kernel kernel) {
  const std::lock_guard<std::mutex> lock(mutex_);
  kernels_.push_back(std::move(kernel));
  return static_cast<int>(kernels_.size()) - 1;
}

const Kernel& Registry::kernel(int handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (handle < 0 || static_cast<std::size_t>(handle) >= kernels_.size()) {
    throw std::invalid_argument("handle (" + std::to_string(handle) + ") stands for no kernel");
  }
  return kernels_[static_cast<std::size_t>(handle)];
}

int Registry::attribute(int device, CUdevice_attribute which) {
  const Driver& driver = Driver::get();
  CUdevice ordinal = 0;
  int value = 0;
  driver.check(driver.cuDeviceGet(&ordinal, device), "cuDeviceGet");
  driver.check(driver.cuDeviceGetAttribute(&value, which, ordinal), "cuDeviceGetAttribute");
  return value;
}

// PyTorch uses primary contexts; this one is retained for the rest of the process, as PyTorch's is.
CUcontext Registry::primary_context(int device) {
  CUcontext& context = contexts_[device];
  if (context) return context;
  const Driver& driver = Driver::get();
  CUdevice ordinal = 0;
  driver.check(driver.cuDeviceGet(&ordinal, device), "cuDeviceGet");
  driver.check(driver.cuDevicePrimaryCtxRetain(&context, ordinal), "cuDevicePrimaryCtxRetain");
  return context;
}

bool Registry::needs_image(int handle, int device) {
  const Kernel& kernel = this->kernel(handle);
  const std::lock_guard<std::mutex> lock(mutex_);
  return modules_.count({device, kernel.unit}) == 0;
}

CUmodule Registry::module(const std::pair<int, std::string>& key, const std::string& image) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = modules_.find(key);
    if (found != modules_.end()) return found->second;
  }
  const CUmodule loaded = load_module(Driver::get(), image);
  const std::lock_guard<std::mutex> lock(mutex_);
  return modules_[key] = loaded;
}

void Registry::load(int handle, int device, unsigned static_shared, const std::string& image) {
  const Driver& driver = Driver::get();
  const std::lock_guard<std::mutex> one_at_a_time(loading_);
  Kernel& kernel = const_cast<Kernel&>(this->kernel(handle));
  std::unique_lock<std::mutex> lock(mutex_);
  const ContextGuard current(driver, primary_context(device));
  lock.unlock();
  const RelaxedCapture relaxed(driver);
  const CUmodule unit = module({device, kernel.unit}, image);
  Loaded loaded;
  loaded.static_shared = static_shared;
  driver.check(driver.cuModuleGetFunction(&loaded.function, unit, kernel.name.c_str()),
               "cuModuleGetFunction");
  lock.lock();
  if (kernel.devices.size() <= static_cast<std::size_t>(device)) kernel.devices.resize(device + 1);
  Loaded& known = kernel.devices[device];
  if (!known.function) known = loaded;  // another thread may have been faster, and launched it since
}

CUfunction Registry::prepare(int handle, int device, unsigned shared, CUcontext* context) {
  const Driver& driver = Driver::get();
  const std::lock_guard<std::mutex> lock(mutex_);
  Kernel& kernel = kernels_[static_cast<std::size_t>(handle)];
  if (kernel.devices.size() <= static_cast<std::size_t>(device)) return nullptr;
  Loaded& loaded = kernel.devices[device];
  if (!loaded.function) return nullptr;
  *context = primary_context(device);
  if (shared > loaded.dynamic_limit && loaded.static_shared + shared > kUsualShared) {
    const ContextGuard current(driver, *context);
    driver.check(driver.cuFuncSetAttribute(loaded.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                           static_cast<int>(shared)),
                 "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)");
    loaded.dynamic_limit = shared;
  }
  return loaded.function;
}

}  // namespace titan_kernels
