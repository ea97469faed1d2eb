// The processor's counter of cycles, which PyTorch reads by an instruction: under a virtual time the kernel forbids the
// instruction in this process, and its signal is answered with the virtual time.
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstring>

#include "clock.h"
#include "next.h"

namespace card {

namespace {

struct sigaction others{};  // what the program wants of the same signal
bool trapped = false;

// The length of the instruction; 0 if it is another one.
int cycle_instruction(const unsigned char* code) {
  if (code[0] == 0x0f && code[1] == 0x31) return 2;                     // rdtsc
  if (code[0] == 0x0f && code[1] == 0x01 && code[2] == 0xf9) return 3;  // rdtscp
  return 0;
}

void answer(int signal_number, siginfo_t* info, void* context) {
  auto* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  if (info->si_code == SI_KERNEL) {  // a page fault has another code
    const int length = cycle_instruction(reinterpret_cast<const unsigned char*>(registers[REG_RIP]));
    if (length > 0) {
      const auto cycles = static_cast<std::uint64_t>(monotonic_base() + advance(kReadingNs));
      registers[REG_RAX] = static_cast<greg_t>(cycles & 0xffff'ffff);
      registers[REG_RDX] = static_cast<greg_t>(cycles >> 32);
      if (length == 3) registers[REG_RCX] = 0;
      registers[REG_RIP] += length;
      return;
    }
  }
  if ((others.sa_flags & SA_SIGINFO) != 0) {
    others.sa_sigaction(signal_number, info, context);
  } else if (others.sa_handler != SIG_DFL && others.sa_handler != SIG_IGN) {
    others.sa_handler(signal_number);
  } else {
    next_of(&sigaction, "sigaction")(signal_number, &others, nullptr);  // it comes again, and ends the process
  }
}

// In this thread, while it makes a program.
void allow_cycle_counter(bool allowed) {
  if (!trapped) return;
  join(getpid());  // between the call of fork and the new program's beginning nobody else tells of it
  prctl(PR_SET_TSC, allowed ? PR_TSC_ENABLE : PR_TSC_SIGSEGV);
}

void without_ours(sigset_t* set) { sigdelset(set, SIGSEGV); }

}  // namespace

void trap_cycle_counter() {
  struct sigaction ours{};
  ours.sa_sigaction = answer;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  next_of(&sigaction, "sigaction")(SIGSEGV, &ours, &others);
  trapped = true;
  prctl(PR_SET_TSC, PR_TSC_SIGSEGV);  // in this thread, and in those that it makes
}

}  // namespace card

extern "C" {

int sigaction(int signal_number, const struct sigaction* wanted, struct sigaction* before) noexcept {
  if (signal_number != SIGSEGV || !card::trapped)
    return card::next_of(&sigaction, "sigaction")(signal_number, wanted, before);
  if (before != nullptr) *before = card::others;
  if (wanted != nullptr) card::others = *wanted;
  return 0;
}

sighandler_t signal(int signal_number, sighandler_t wanted) noexcept {
  struct sigaction with{};
  struct sigaction before{};
  with.sa_handler = wanted;
  with.sa_flags = SA_RESTART;
  sigaddset(&with.sa_mask, signal_number);
  return sigaction(signal_number, &with, &before) == 0 ? before.sa_handler : SIG_ERR;
}

// A thread that blocked the signal would end with the process.
int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) noexcept {
  const auto next = card::next_of(&pthread_sigmask, "pthread_sigmask");
  if (set == nullptr || !card::trapped || how == SIG_UNBLOCK) return next(how, set, before);
  sigset_t changed = *set;
  card::without_ours(&changed);
  return next(how, &changed, before);
}

int sigprocmask(int how, const sigset_t* set, sigset_t* before) noexcept {
  const auto next = card::next_of(&sigprocmask, "sigprocmask");
  if (set == nullptr || !card::trapped || how == SIG_UNBLOCK) return next(how, set, before);
  sigset_t changed = *set;
  card::without_ours(&changed);
  return next(how, &changed, before);
}

// The kernel's word against the instruction stays with a new program, whose loader reads the counter before anybody can
// answer. So it is taken back for the new program; the card's own beginning there gives it again.

int execve(const char* path, char* const arguments[], char* const environment[]) noexcept {
  card::allow_cycle_counter(true);
  const int result = card::next_of(&execve, "execve")(path, arguments, environment);
  card::allow_cycle_counter(false);
  return result;
}

int execv(const char* path, char* const arguments[]) noexcept { return execve(path, arguments, environ); }

int execvpe(const char* file, char* const arguments[], char* const environment[]) noexcept {
  card::allow_cycle_counter(true);
  const int result = card::next_of(&execvpe, "execvpe")(file, arguments, environment);
  card::allow_cycle_counter(false);
  return result;
}

int execvp(const char* file, char* const arguments[]) noexcept { return execvpe(file, arguments, environ); }

int posix_spawn(pid_t* process, const char* path, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* attributes, char* const arguments[], char* const environment[]) {
  card::allow_cycle_counter(true);
  const int result = card::next_of(&posix_spawn, "posix_spawn", "GLIBC_2.15")(process, path, actions, attributes,
                                                                              arguments, environment);
  card::allow_cycle_counter(false);
  return result;
}

int posix_spawnp(pid_t* process, const char* file, const posix_spawn_file_actions_t* actions,
                 const posix_spawnattr_t* attributes, char* const arguments[], char* const environment[]) {
  card::allow_cycle_counter(true);
  const int result = card::next_of(&posix_spawnp, "posix_spawnp", "GLIBC_2.15")(process, file, actions, attributes,
                                                                                arguments, environment);
  card::allow_cycle_counter(false);
  return result;
}

}  // extern "C"
