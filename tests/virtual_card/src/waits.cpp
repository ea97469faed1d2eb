// Waits under a virtual time. What moves it is only what programs do; so where no thread of the test runs, or has just
// run, it jumps to the end of the first wait.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "clock.h"

namespace card {

namespace {

// The text of a small file of the kernel; false without one.
template <std::size_t kBytes>
bool read_file(const char* path, char (&text)[kBytes]) {
  const int file = static_cast<int>(syscall(SYS_open, path, O_RDONLY | O_CLOEXEC));
  if (file < 0) return false;
  const ssize_t length = read(file, text, kBytes - 1);
  close(file);
  text[length < 0 ? 0 : length] = 0;
  return length > 0;
}

// Whether a thread has ended, though its process may still have a number until somebody asks how it ended.
bool has_ended(int process, int thread) {
  char path[128], text[512];
  std::snprintf(path, sizeof path, "/proc/%d/task/%d/stat", process, thread);
  const char* after_name = read_file(path, text) ? std::strrchr(text, ')') : nullptr;
  return after_name == nullptr || after_name[2] == 'Z' || after_name[2] == 'X';
}

bool is_waiting(int thread) {
  const auto waits = [thread](const WaitingThread& one) { return one.process != 0 && one.thread == thread; };
  return std::any_of(std::begin(shared().waits), std::end(shared().waits), waits);
}

// What a thread has done so far, as a number; 0 while it runs or could (R), or waits for a disk (D).
std::uint64_t done_by(int process, int thread) {
  char path[128], text[512];
  std::snprintf(path, sizeof path, "/proc/%d/task/%d/stat", process, thread);
  if (!read_file(path, text)) return 1;
  const char* after_name = std::strrchr(text, ')');
  if (after_name == nullptr || after_name[2] == 'R' || after_name[2] == 'D') return 0;
  std::snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", process, thread);
  const std::uint64_t ran_ns = read_file(path, text) ? std::strtoull(text, nullptr, 10) : 0;
  return 1 + ran_ns * 1'000'003 + static_cast<std::uint64_t>(thread);
}

std::uint64_t done_by(int process) {
  char folder[64];
  std::snprintf(folder, sizeof folder, "/proc/%d/task", process);
  DIR* tasks = opendir(folder);
  if (tasks == nullptr) return 1;
  std::uint64_t sum = 1;
  while (const dirent* entry = readdir(tasks)) {
    const int thread = std::atoi(entry->d_name);
    if (thread == 0 || is_waiting(thread)) continue;
    const std::uint64_t done = done_by(process, thread);
    sum = done == 0 ? 0 : sum + done;
    if (done == 0) break;
  }
  closedir(tasks);
  return sum;
}

// What all threads have done so far but those that wait with a limit; 0 while one runs. One that hands over to another
// and sleeps may never be seen to run, but not to have done nothing.
std::uint64_t done_by_all() {
  std::uint64_t sum = 1;
  for (const std::atomic<int>& slot : shared().processes) {
    const int process = slot;
    if (process == 0) continue;
    const std::uint64_t done = done_by(process);
    if (done == 0) return 0;
    sum += done;
  }
  return sum;
}

// The end of the first wait; that of a thread that has ended is forgotten.
Ns first_limit() {
  Ns first = std::numeric_limits<Ns>::max();
  for (WaitingThread& one : shared().waits) {
    int process = one.process;
    if (process == 0) continue;
    const int thread = one.thread;  // 0: it has only begun to wait
    if (thread != 0 && has_ended(process, thread)) {
      one.thread = 0;
      one.process.compare_exchange_strong(process, 0);
      continue;
    }
    first = std::min<Ns>(first, one.limit);
  }
  return first;
}

}  // namespace

void join(int process) {
  for (const std::atomic<int>& slot : shared().processes) {
    if (slot == process) return;
  }
  for (std::atomic<int>& slot : shared().processes) {
    int seen = slot;
    const bool is_free = seen == 0 || kill(seen, 0) != 0;
    if (is_free && slot.compare_exchange_strong(seen, process)) return;
  }
}

Wait::Wait(Ns limit) : limit_(limit) {
  const int process = getpid();
  for (WaitingThread& one : shared().waits) {
    int nobody = 0;
    if (!one.process.compare_exchange_strong(nobody, process)) continue;
    one.limit = limit;
    one.thread = static_cast<int>(syscall(SYS_gettid));
    own_ = &one;
    return;
  }
}

Wait::~Wait() {
  if (own_ == nullptr) return;
  own_->limit = std::numeric_limits<Ns>::max();
  own_->thread = 0;
  own_->process = 0;
}

void Wait::jump_if_idle() {
  const Ns moment = elapsed();
  const Ns next = first_limit();
  const std::uint64_t done = next > moment ? done_by_all() : 0;  // whose wait is over, runs soon
  if (done != 0 && done == seen_ && elapsed() == moment) advance_to(std::min(next, limit_));
  seen_ = done;
}

}  // namespace card
