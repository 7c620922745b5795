// Everything that units share, compiled once: scheduler, checks, counters, matrix instructions, launches.
#include <titan_emulator/runtime/launch.h>
#include <titan_emulator/runtime/matrices.h>
