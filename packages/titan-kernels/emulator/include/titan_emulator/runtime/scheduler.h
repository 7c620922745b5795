// Runs the threads of a block.
//
// A thread runs until it waits or ends.  Warps proceed in rounds: all lanes that can run do so, one after
// the other in a random order, each to its next synchronisation; then the warp's collective operation is
// done, and a random warp goes next.  The seed fixes all of it.
#pragma once

#include <titan_emulator/runtime/requests.h>
#include <titan_emulator/runtime/waiting.h>

namespace titan::emulator {

inline void begin_round(Warp& warp) {
  const u32 r = launch.random.next();
  warp.position = 0;
  warp.step = r | 1;
  warp.first = r >> 16;
}

inline Thread* next_lane(Warp& warp) {
  while (warp.position < WARP_SIZE) {
    const int lane = (warp.position++ * warp.step + warp.first) % WARP_SIZE;
    if (lane < warp.lanes && warp.threads[lane].status == Status::READY) return &warp.threads[lane];
  }
  return nullptr;
}

// All lanes wait or have ended.  Does their collective operation; returns whether they can go on.
inline bool end_round(Warp& warp) {
  if (launch.options.count) count_round(warp);
  Thread* first = nullptr;
  bool same = true;
  for (int lane = 0; lane < warp.lanes; ++lane) {
    Thread& t = warp.threads[lane];
    if (t.status != Status::AT_COLLECTIVE) continue;
    if (first == nullptr) first = &t;
    else same = same && t.collective == first->collective && t.site == first->site;
  }
  if (first == nullptr) return false;
  check_collective(warp, *first, same);
  first->collective(warp, first->site);
  for (int lane = 0; lane < warp.lanes; ++lane)
    if (warp.threads[lane].status == Status::AT_COLLECTIVE) warp.threads[lane].status = Status::READY;
  tick(first->site);
  return true;
}

// No warp can run.  Opens the barrier if all threads stand at it; false when all have ended.
inline bool release_barrier() {
  Thread* waiting = nullptr;
  for (Thread& t : launch.threads)
    if (t.status == Status::AT_BARRIER) {
      waiting = &t;
      break;
    }
  if (waiting == nullptr) return false;
  check_barrier(*waiting);
  count(waiting->site, barriers);
  launch.barrier_stamp = ++launch.clock;
  if (waiting->collective != nullptr) waiting->collective(launch.warps[0], waiting->site);
  for (Thread& t : launch.threads) t.status = Status::READY;
  for (Warp& warp : launch.warps) {
    warp.stamp = launch.clock;
    launch.ready.push_back(&warp);
  }
  return true;
}

// The thread to run next; null when the block is done.
inline Thread* schedule() {
  while (true) {
    if (Thread* t = next_lane(*launch.warp)) return t;
    if (!end_round(*launch.warp))
      launch.ready.erase(std::find(launch.ready.begin(), launch.ready.end(), launch.warp));
    if (launch.ready.empty() && !release_barrier()) return nullptr;
    launch.warp = launch.ready[launch.random.below(launch.ready.size())];
    begin_round(*launch.warp);
  }
}

inline void run(Thread& next, Context& self) {
  launch.current = &next;
  threadIdx = next.index;
  switch_context(self, next.context);
}

void wait(Thread& self) {
  Thread* next = schedule();
  if (next != &self) run(*next, self.context);
  else launch.current = next, threadIdx = next->index;
}

inline void thread_main() {
  launch.invoke(launch.arguments);
  Thread& self = *launch.current;
  self.status = Status::EXITED;
  if (Thread* next = schedule()) {
    run(*next, self.context);
  } else {
    launch.current = nullptr;
    switch_context(self.context, launch.main_context);
  }
  abort();
}

inline void start_block(uint3 index, u64 number) {
  blockIdx = index;
  launch.barrier_stamp = ++launch.clock;
  launch.acquired = false;
  launch.blocks.push_back({launch.clock, number, false});
  launch.ready.clear();
  for (Thread& t : launch.threads) {
    t.status = Status::READY;
    t.site = Site();
    t.log.clear();
    prepare_context(t.context, t.stack, thread_main);
  }
  for (Warp& warp : launch.warps) {
    warp.stamp = launch.clock;
    launch.ready.push_back(&warp);
  }
}

inline void run_block(uint3 index, u64 number) {
  start_block(index, number);
  launch.warp = launch.ready[launch.random.below(launch.ready.size())];
  begin_round(*launch.warp);
  Thread* first = next_lane(*launch.warp);
  run(*first, launch.main_context);
}

}  // namespace titan::emulator
