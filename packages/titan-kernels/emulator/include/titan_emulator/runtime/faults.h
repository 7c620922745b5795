// Faults of the host that a kernel's bug leads to: a full stack, a division by zero.
#pragma once

#include <signal.h>
#include <titan_emulator/runtime/waiting.h>

namespace titan::emulator {

inline struct sigaction previous_segv, previous_bus, previous_fpe;

// Faults outside of kernels go back to whoever handled them before: returning repeats the instruction.
inline void pass_on(int signal) {
  sigaction(signal,
            signal == SIGSEGV  ? &previous_segv
            : signal == SIGBUS ? &previous_bus
                               : &previous_fpe,
            nullptr);
}

// Where a fault lies is not known, only what the thread has passed.
inline const char* since(const Thread& t) {
  return t.site.line == 0 ? ", before the thread's first synchronisation"
                          : ", after the thread's last synchronisation here";
}

inline void on_fault(int signal, siginfo_t* info, void*) {
  const Thread* t = launch.current;
  if (t == nullptr) return pass_on(signal);
  if (signal == SIGFPE)
    fail("division-by-zero", t->site, std::string("integer division by zero") + since(*t));
  if (StackPool::in_guard(t->stack, info->si_addr))
    fail("stack-overflow", t->site,
         "local variables exceed the thread's stack of " + std::to_string(STACK_BYTES >> 10) +
             " KB" + since(*t));
  pass_on(signal);
}

// Catches them while it lives, on a stack of its own: the thread's may be the full one.
class FaultHandler {
 public:
  FaultHandler() {
    stack_t stack{};
    stack.ss_sp = stack_;
    stack.ss_size = sizeof(stack_);
    sigaltstack(&stack, &previous_stack_);
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous_segv);
    sigaction(SIGBUS, &action, &previous_bus);
    sigaction(SIGFPE, &action, &previous_fpe);
  }
  ~FaultHandler() {
    sigaction(SIGSEGV, &previous_segv, nullptr);
    sigaction(SIGBUS, &previous_bus, nullptr);
    sigaction(SIGFPE, &previous_fpe, nullptr);
    sigaltstack(&previous_stack_, nullptr);
  }
  FaultHandler(const FaultHandler&) = delete;

 private:
  alignas(16) static inline char stack_[64 << 10];
  stack_t previous_stack_{};
};

}  // namespace titan::emulator
