#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>

namespace titan_kernels {
namespace {

std::atomic<bool> opened{false};
std::atomic<bool> forked{false};

void in_child() {
  if (opened) forked = true;
}

const char* library_name() {
  const char* named = std::getenv("TITAN_CUDA_DRIVER");
  return named && *named ? named : "libcuda.so.1";
}

void* open_library() {
  void* library = dlopen(library_name(), RTLD_NOW | RTLD_LOCAL);
  if (library) return library;
  throw DriverError(std::string("no CUDA driver: ") + dlerror() +
                    "; install NVIDIA's driver, or name its library in TITAN_CUDA_DRIVER");
}

void* find(void* library, const char* name) {
  if (void* symbol = dlsym(library, name)) return symbol;
  throw DriverError(std::string("the CUDA driver (") + library_name() + ") has no " + name +
                    ": it is too old, install 450 or newer");
}

}  // namespace

Driver::Driver() {
  void* library = open_library();
#define TITAN_STRING(name) #name
#define TITAN_FIND(name) name = reinterpret_cast<decltype(name)>(find(library, TITAN_STRING(name)));
  TITAN_DRIVER_FUNCTIONS(TITAN_FIND)
#undef TITAN_FIND
#undef TITAN_STRING
  check(cuInit(0), "cuInit");
  pthread_atfork(nullptr, nullptr, in_child);
  opened = true;
}

const Driver& Driver::get() {
  if (forked) {
    throw DriverError(
        "this process was forked after its parent had used CUDA, which CUDA does not survive: start "
        "processes with the \"spawn\" method, or fork before the first kernel");
  }
  static const Driver driver;
  return driver;
}

void Driver::check(CUresult result, const char* call, const std::string& log) const {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  const char* words = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &words);
  throw DriverError(std::string(call) + ": " + (name ? name : "unknown error") + " (" +
                    std::to_string(static_cast<int>(result)) + "): " + (words ? words : "no description") +
                    (log.empty() ? "" : "\n" + log));
}

ContextGuard::ContextGuard(const Driver& driver, CUcontext context) : driver_(driver) {
  CUcontext current = nullptr;
  driver_.check(driver_.cuCtxGetCurrent(&current), "cuCtxGetCurrent");
  if (current == context) return;
  driver_.check(driver_.cuCtxPushCurrent(context), "cuCtxPushCurrent");
  pushed_ = true;
}

ContextGuard::~ContextGuard() {
  CUcontext popped = nullptr;
  if (pushed_) driver_.cuCtxPopCurrent(&popped);
}

}  // namespace titan_kernels
