// A CUDA driver that runs nothing: it writes down every call, fails when told to, and reports the devices
// that STUB_CAPABILITIES lists, such as "7.0,7.5".  Built by stub_driver.py.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

std::string text;                         // one line per call
bool recording = true;
int delay = 0;                            // of loading, milliseconds
std::map<std::string, int> failures;      // by the name of the call
std::vector<int> sizes;                   // of the parameters of what is launched, bytes
thread_local std::vector<void*> contexts;

int result(const char* call) {
  const auto found = failures.find(call);
  return found == failures.end() ? 0 : found->second;
}

int record(const char* call, const std::string& details = "") {
  if (recording) text += std::string(call) + (details.empty() ? "" : " " + details) + "\n";
  return result(call);
}

std::string number(std::uintptr_t value) { return std::to_string(value); }

std::string hex(const void* bytes, int count) {
  std::string digits(2 * count, ' ');
  for (int i = 0; i < count; ++i) {
    const unsigned byte = static_cast<const unsigned char*>(bytes)[i];
    digits[2 * i] = "0123456789abcdef"[byte / 16];
    digits[2 * i + 1] = "0123456789abcdef"[byte % 16];
  }
  return digits;
}

std::string list(const unsigned* values) {
  return number(values[0]) + "," + number(values[1]) + "," + number(values[2]);
}

const char* capability(int device) {
  const char* at = std::getenv("STUB_CAPABILITIES");
  for (; at && device > 0; --device) at = std::strchr(at, ',') ? std::strchr(at, ',') + 1 : nullptr;
  return at;
}

}  // namespace

extern "C" {

// For the tests.
const char* stub_text() { return text.c_str(); }
void stub_clear() { text.clear(); }
void stub_record(int on) { recording = on; }
void stub_delay(int milliseconds) { delay = milliseconds; }
void stub_fail(const char* call, int code) { failures[call] = code; }
void stub_parameters(const int* values, int count) { sizes.assign(values, values + count); }

// The driver.
int cuInit(unsigned) { return record("cuInit"); }
int cuDriverGetVersion(int* version) { *version = 12090; return 0; }
int cuDeviceGet(int* device, int ordinal) { *device = ordinal; return capability(ordinal) ? 0 : 101; }

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const char* version = capability(device);
  *value = attribute == 75 ? std::atoi(version) : attribute == 76 ? std::atoi(version + 2) : 65536;
  return 0;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(std::uintptr_t(0x1000 + device));
  return record("cuDevicePrimaryCtxRetain", number(device));
}

int cuCtxGetCurrent(void** context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return record("cuCtxGetCurrent");
}

int cuCtxPushCurrent_v2(void* context) {
  contexts.push_back(context);
  return record("cuCtxPushCurrent", number(reinterpret_cast<std::uintptr_t>(context)));
}

int cuCtxPopCurrent_v2(void** context) {
  *context = contexts.back();
  contexts.pop_back();
  return record("cuCtxPopCurrent");
}

int cuModuleLoadDataEx(void** module, const void* image, unsigned count, const int* options, void** values) {
  const int code = record("cuModuleLoadDataEx", static_cast<const char*>(image));
  usleep(1000 * delay);
  for (unsigned i = 0; code && i < count; ++i) {
    if (options[i] == 5) std::strcpy(static_cast<char*>(values[i]), "ptxas error: words of the compiler");
  }
  *module = contexts.back();
  return code;
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
  static std::uintptr_t next = 0x2000;
  *function = reinterpret_cast<void*>(next++);
  return record("cuModuleGetFunction", number(reinterpret_cast<std::uintptr_t>(module)) + " " + name);
}

int cuFuncSetAttribute(void*, int attribute, int value) {
  return record("cuFuncSetAttribute", number(attribute) + " " + number(value));
}

#ifndef STUB_OLD_DRIVER
int cuThreadExchangeStreamCaptureMode(int* mode) {
  const int before = 0;
  const int code = record("cuThreadExchangeStreamCaptureMode", number(*mode));
  *mode = before;
  return code;
}
#endif

int cuLaunchKernel(void*, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** parameters, void**) {
  if (!recording) return result("cuLaunchKernel");
  const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
  void* context = contexts.empty() ? nullptr : contexts.back();
  std::string details = "context=" + number(reinterpret_cast<std::uintptr_t>(context)) +
                        " grid=" + list(grid) + " block=" + list(block) + " shared=" + number(shared) +
                        " stream=" + number(reinterpret_cast<std::uintptr_t>(stream)) + " parameters=";
  for (std::size_t i = 0; i < sizes.size(); ++i) details += (i ? "," : "") + hex(parameters[i], sizes[i]);
  return record("cuLaunchKernel", details);
}

int cuGetErrorName(int code, const char** name) {
  *name = code == 700   ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : code == 218 ? "CUDA_ERROR_INVALID_PTX"
                        : "CUDA_ERROR_INVALID_VALUE";
  return 0;
}

int cuGetErrorString(int code, const char** words) {
  *words = code == 700   ? "an illegal memory access was encountered"
           : code == 218 ? "a PTX JIT compilation failed"
                         : "invalid argument";
  return 0;
}

}
