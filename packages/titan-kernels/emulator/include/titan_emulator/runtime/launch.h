// The C interface that Python calls: runs one launch and reports in JSON.
//
// A launch has a stack of its own, on which it pauses from time to time: Python runs the handlers of
// signals between its own instructions only.  Calls must not overlap.
#pragma once

#include <new>

#include <titan_emulator/runtime/binder.h>
#include <titan_emulator/runtime/faults.h>
#include <titan_emulator/runtime/report.h>
#include <titan_emulator/runtime/scheduler.h>

struct TitanLaunch {
  const char* kernel;
  titan::u32 grid[3], block[3];
  titan::u64 dynamic_shared, shared_limit;
  const TitanArgument* arguments;
  titan::u64 argument_count;
  const titan::u64* blocks;  // the ones to run, by number; null for all
  titan::u64 block_count;
  titan::u64 seed;
  titan::i32 check, count;
  double time_limit;  // seconds; 0 for none
};

namespace titan::emulator {

constexpr u64 MAX_BLOCKS = 1 << 24;  // 32 bytes are kept of each

inline const Kernel& find_kernel(const char* name) {
  std::string known;
  for (const Kernel& k : kernels) {
    if (strcmp(k.name, name) == 0) return k;
    known += std::string(known.empty() ? "" : ", ") + k.name;
  }
  throw BadLaunch{"the unit has no such kernel; it has: " + known};
}

inline void check_geometry(const Kernel& kernel, const TitanLaunch& request) {
  const u32 *g = request.grid, *b = request.block;
  const u64 threads = static_cast<u64>(b[0]) * b[1] * b[2];
  if (threads == 0 || threads > 1024 || b[2] > 64)
    throw BadLaunch{"block " + triple({b[0], b[1], b[2]}) +
                    ": a block has 1 to 1024 threads, at most 64 in z"};
  if (threads > kernel.max_threads)
    throw BadLaunch{"block " + triple({b[0], b[1], b[2]}) + " has " + plural(threads, "thread") +
                    "; the kernel is compiled for at most " + std::to_string(kernel.max_threads)};
  if (g[0] == 0 || g[1] == 0 || g[2] == 0 || g[0] > 0x7fffffffu || g[1] > 0xffff || g[2] > 0xffff)
    throw BadLaunch{"grid " + triple({g[0], g[1], g[2]}) +
                    ": 1 to 2^31 - 1 blocks in x, 1 to 65535 in y and z"};
  if (request.blocks == nullptr && static_cast<u64>(g[0]) * g[1] * g[2] > MAX_BLOCKS)
    throw BadLaunch{"grid " + triple({g[0], g[1], g[2]}) +
                    " has more than 2^24 blocks, too many to emulate: run some of them (blocks)"};
}

inline void build_threads(dim3 block) {
  const size_t n = static_cast<size_t>(block.x) * block.y * block.z;
  launch.threads.resize(n);
  launch.warps.assign((n + WARP_SIZE - 1) / WARP_SIZE, Warp());
  for (size_t i = 0; i < n; ++i) {
    Thread& t = launch.threads[i];
    const unsigned number = static_cast<unsigned>(i);
    t.index = {number % block.x, number / block.x % block.y, number / block.x / block.y};
    t.number = static_cast<u16>(i);
    t.lane = i % WARP_SIZE;
    t.warp = &launch.warps[i / WARP_SIZE];
    t.stack = stacks.get(i);
    if (t.stack == nullptr) throw BadLaunch{"out of memory for the stacks of " + plural(n, "thread")};
    if (t.lane == 0) t.warp->threads = &t;
    ++t.warp->lanes;
  }
}

inline void start_launch(const TitanLaunch& request) {
  launch.options = {request.check != 0, request.count != 0, request.seed,
                    static_cast<u32>(request.shared_limit), request.time_limit};
  launch.random = Random(request.seed);
  launch.clock = launch.ticks = 0;
  launch.deadline = request.time_limit > 0 ? now() + request.time_limit : 0;
  launch.cancelled = false;
  launch.next_pause = now() + PAUSE_SECONDS;
  launch.blocks.clear();
  launch.failure = Failure();
  launch.number += 1;
  gridDim = dim3(request.grid[0], request.grid[1], request.grid[2]);
  blockDim = dim3(request.block[0], request.block[1], request.block[2]);
  sites.clear_counts();
  regions.clear();
  arena.start_launch(request.dynamic_shared);
}

// In random order, as on a GPU no order is promised.
inline std::vector<u64> block_order(const TitanLaunch& request) {
  std::vector<u64> order(request.blocks,
                         request.blocks + (request.blocks == nullptr ? 0 : request.block_count));
  const u64 total = static_cast<u64>(gridDim.x) * gridDim.y * gridDim.z;
  if (request.blocks == nullptr)
    for (u64 i = 0; i < total; ++i) order.push_back(i);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[launch.random.below(i)]);
  return order;
}

inline void run_blocks(const TitanLaunch& request) {
  const FaultHandler handler;
  for (const u64 n : block_order(request)) {
    arena.start_block();
    run_block({static_cast<unsigned>(n % gridDim.x), static_cast<unsigned>(n / gridDim.x % gridDim.y),
               static_cast<unsigned>(n / gridDim.x / gridDim.y)},
              n);
    if (launch.failure.happened) return;
  }
}

inline void run_launch(const TitanLaunch& request) {
  const Kernel& kernel = find_kernel(request.kernel);
  check_geometry(kernel, request);
  if (request.argument_count != kernel.parameter_count)
    throw BadLaunch{"the kernel takes " + plural(kernel.parameter_count, "argument") + " " +
                    kernel.parameters + ", but got " + std::to_string(request.argument_count)};
  start_launch(request);
  Binder binder(request.arguments, parameter_names(kernel.parameters));
  void* values = kernel.bind(binder);
  regions.build();
  build_threads(blockDim);
  launch.arguments = values;
  launch.invoke = kernel.invoke;
  run_blocks(request);
  kernel.release(values);
}

inline std::string launch_report(const TitanLaunch& request) {
  std::string report;
  try {
    run_launch(request);
    report = launch.failure.happened ? failure_report() : counters_report();
  } catch (const BadLaunch& bad) {
    report = bad_launch_report(bad);
  } catch (const std::bad_alloc&) {
    report = bad_launch_report({"out of memory"});
  }
  launch.threads.clear();  // their logs may be large
  regions.clear();
  stacks.trim();
  return report;
}

inline StackPool launch_stack;
inline const TitanLaunch* launch_request = nullptr;
inline std::string last_report = "{}";
inline bool finished = true;

inline void launch_main() {
  last_report = launch_report(*launch_request);
  finished = true;
  switch_context(launch.paused_context, launch.caller_context);
  abort();
}

// Until the next pause or the end; null when it is a pause.
inline char* proceed() {
  if (!finished) switch_context(launch.caller_context, launch.paused_context);
  return finished ? strdup(last_report.c_str()) : nullptr;
}

inline char* resume(bool cancel) {
  launch.cancelled = launch.cancelled || cancel;
  return proceed();
}

inline char* begin(const TitanLaunch& request) {
  while (!finished) free(resume(true));  // an exception kept Python from ending it
  char* stack = launch_stack.get(0);
  if (stack == nullptr) return strdup(bad_launch_report({"out of memory"}).c_str());
  launch_request = &request;
  finished = false;
  prepare_context(launch.paused_context, stack, launch_main);
  return proceed();
}

}  // namespace titan::emulator

#define TITAN_EXPORT extern "C" __attribute__((visibility("default"), used))

// JSON, which the caller gives back to titan_emulator_free(); null where the launch pauses, for
// titan_emulator_resume() to go on.
TITAN_EXPORT char* titan_emulator_launch(const TitanLaunch* request) {
  return titan::emulator::begin(*request);
}

// Goes on, or ends the launch early; the report once more where it has ended.
TITAN_EXPORT char* titan_emulator_resume(titan::i32 cancel) { return titan::emulator::resume(cancel != 0); }

TITAN_EXPORT void titan_emulator_free(char* report) { free(report); }

// The unit's kernels: {"name": {"max_threads": ..., "parameters": "..."}}.
TITAN_EXPORT char* titan_emulator_kernels() { return strdup(titan::emulator::kernels_report().c_str()); }
