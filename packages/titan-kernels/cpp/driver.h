// NVIDIA's driver, opened when it is first needed: nothing here links against CUDA.
#pragma once

#include <cuda.h>

#include <stdexcept>
#include <string>

namespace titan_kernels {

// The entry points we use.  cuda.h renames some of them (cuCtxPushCurrent_v2 ...), here as everywhere.
#define TITAN_DRIVER_FUNCTIONS(F)      \
  F(cuInit)                            \
  F(cuDriverGetVersion)                \
  F(cuDeviceGet)                       \
  F(cuDeviceGetAttribute)              \
  F(cuDevicePrimaryCtxRetain)          \
  F(cuCtxGetCurrent)                   \
  F(cuCtxPushCurrent)                  \
  F(cuCtxPopCurrent)                   \
  F(cuModuleLoadDataEx)                \
  F(cuModuleGetFunction)               \
  F(cuFuncSetAttribute)                \
  F(cuLaunchKernel)                    \
  F(cuThreadExchangeStreamCaptureMode) \
  F(cuGetErrorName)                    \
  F(cuGetErrorString)

// The driver is missing, too old, or refused a call; the message holds its words.
class DriverError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Driver {
 public:
  // The process' driver, opened and initialised by the first call.  Throws DriverError, also in a
  // process that was forked after that: CUDA does not survive a fork.
  static const Driver& get();

  // Throws DriverError naming `call`, the error and, if any, the compiler's log.
  void check(CUresult result, const char* call, const std::string& log = "") const;

#define TITAN_MEMBER(name) decltype(&::name) name = nullptr;
  TITAN_DRIVER_FUNCTIONS(TITAN_MEMBER)
#undef TITAN_MEMBER

 private:
  Driver();
};

// Makes a context the calling thread's current one for a while, where it is not already.
class ContextGuard {
 public:
  ContextGuard(const Driver& driver, CUcontext context);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

}  // namespace titan_kernels
