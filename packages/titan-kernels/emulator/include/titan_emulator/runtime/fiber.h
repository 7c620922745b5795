// Fibers: stacks of their own and the switch between them.
//
// A switch saves what the calling convention lets a function keep: callee-saved registers and the stack
// pointer.  TITAN_EMULATOR_UCONTEXT takes POSIX contexts instead, on machines without a switch here.
#pragma once

#include <sys/mman.h>
#include <titan_emulator/state.h>

namespace titan::emulator {

constexpr size_t STACK_BYTES = 128 << 10, GUARD_BYTES = 64 << 10;

#ifdef TITAN_EMULATOR_UCONTEXT

inline void switch_context(Context& from, Context& to) { swapcontext(&from, &to); }
inline void prepare_context(Context& context, char* stack, void (*entry)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack + GUARD_BYTES;
  context.uc_stack.ss_size = STACK_BYTES;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}

#else
}  // namespace titan::emulator

extern "C" __attribute__((visibility("hidden"))) void titan_emulator_switch(void** save, void* stack_pointer);

#ifdef __x86_64__
__asm__(R"(
  .text
  .hidden titan_emulator_switch
  .globl titan_emulator_switch
  .type titan_emulator_switch, @function
titan_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size titan_emulator_switch, .-titan_emulator_switch
)");
#else
__asm__(R"(
  .text
  .hidden titan_emulator_switch
  .globl titan_emulator_switch
  .type titan_emulator_switch, %function
titan_emulator_switch:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
  .size titan_emulator_switch, .-titan_emulator_switch
)");
#endif

namespace titan::emulator {

inline void switch_context(Context& from, Context& to) { titan_emulator_switch(&from, to); }

// A stack as if `entry` had just been called from nowhere.
inline void prepare_context(Context& context, char* stack, void (*entry)()) {
  void** top = reinterpret_cast<void**>(stack + GUARD_BYTES + STACK_BYTES) - 8;
#ifdef __x86_64__
  *--top = nullptr;  // keeps the alignment that a call instruction would give
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
#else
  top -= 20;
  std::fill(top, top + 20, nullptr);
  top[11] = reinterpret_cast<void*>(entry);  // x30
#endif
  context = top;
}
#endif

// Stacks outlive a launch; below each lies a guard that turns an overflow into a fault.
class StackPool {
 public:
  // The stack of thread `i`; null when the system has no memory left.
  char* get(size_t i) {
    while (stacks_.size() <= i) {
      void* p = mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (p == MAP_FAILED) return nullptr;
      char* stack = static_cast<char*>(p);
      if (mprotect(stack + GUARD_BYTES, STACK_BYTES, PROT_READ | PROT_WRITE) != 0) {
        munmap(stack, GUARD_BYTES + STACK_BYTES);
        return nullptr;
      }
      stacks_.push_back(stack);
    }
    return stacks_[i];
  }

  // Returns large pools to the system: mappings are a limited resource.
  void trim() {
    while (stacks_.size() > KEEP) {
      munmap(stacks_.back(), GUARD_BYTES + STACK_BYTES);
      stacks_.pop_back();
    }
  }

  static bool in_guard(const char* stack, const void* address) {
    return address >= stack && address < stack + GUARD_BYTES;
  }

 private:
  static constexpr size_t KEEP = 256;
  std::vector<char*> stacks_;
};

inline StackPool stacks;

}  // namespace titan::emulator
