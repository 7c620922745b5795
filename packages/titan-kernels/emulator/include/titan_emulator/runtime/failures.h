// How a launch ends early, and the words for it.
#pragma once

#include <titan_emulator/runtime/fiber.h>

namespace titan::emulator {

inline double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The last two parts of a file's path, and the line.
inline std::string place(Site at) {
  if (at.line == 0) return "a line unknown";
  const char *name = at.file, *previous = at.file;
  for (const char* p = at.file; *p; ++p)
    if (*p == '/') previous = name, name = p + 1;
  return std::string(previous) + ":" + std::to_string(at.line);
}

inline std::string triple(uint3 v) {
  return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
}

inline std::string plural(u64 n, const char* noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

// A launch that is wrong before its first thread runs.
struct BadLaunch {
  std::string message;
};

[[noreturn]] void fail(const char* rule, Site at, std::string message, const Thread* who) {
  if (who == nullptr) who = launch.current;
  launch.failure = {true, rule, std::move(message), blockIdx, who->index, at};
  launch.current = nullptr;
  Context abandoned;
  switch_context(abandoned, launch.main_context);
  abort();
}

constexpr double PAUSE_SECONDS = 0.05;

// Lets Python run; faults are not this launch's meanwhile.
inline void pause() {
  Thread* const running = launch.current;
  launch.current = nullptr;
  switch_context(launch.paused_context, launch.caller_context);
  launch.current = running;
  launch.next_pause = now() + PAUSE_SECONDS;
}

void check_deadline(Site at) {
  if (now() >= launch.next_pause) pause();
  if (launch.cancelled) fail("cancelled", at, "the launch was interrupted");
  if (launch.deadline == 0 || now() < launch.deadline) return;
  char limit[32];
  snprintf(limit, sizeof(limit), "%g", launch.options.time_limit);
  fail("endless", at,
       std::string("the launch is still running after ") + limit +
           " s (time_limit); a thread that waits in a loop for another one never sees it run");
}

}  // namespace titan::emulator
