#include "recorder.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "chunk_file.h"
#include "event_ring.h"
#include "names.h"

namespace curvescope::recorder {
namespace {

constexpr long kFlushNs = 10'000'000;      // what a killed process can lose
constexpr std::size_t kMostThreads = 512;  // 256 MiB of rings

// All that belongs to one process. A forked child makes its own and leaks the parent's, whose locks may be held by
// threads that the child does not have.
struct Process {
  explicit Process(const std::string& folder) : file(folder) { sem_init(&wake, 0, 0); }

  std::mutex rings_mutex;
  std::vector<std::unique_ptr<EventRing>> rings;
  std::timed_mutex flush_mutex;  // over file, strings_written and lost_written
  ChunkFile file;
  std::uint32_t strings_written = 0;
  std::uint64_t lost_written = 0;
  std::atomic<std::uint64_t> lost_events{0};
  std::atomic<std::uint64_t> lost_names{0};
  std::atomic<std::uint64_t> lost_writes{0};
  std::atomic<bool> writer_started{false};
  sem_t wake;
};

std::string* folder = nullptr;
Names* names = nullptr;  // outlives every thread, as all of these do: nothing is destroyed at exit
std::atomic<Process*> process{nullptr};
pthread_key_t thread_end;
thread_local EventRing* ring = nullptr;

struct Batch {
  std::int64_t thread;
  std::vector<Event> events;
};

// Only the first allocation may throw, when nothing is taken yet: no event is lost uncounted.
std::vector<Batch> take_events(Process& p) {
  std::vector<Batch> batches;
  const std::lock_guard<std::mutex> lock(p.rings_mutex);
  batches.reserve(p.rings.size());
  for (auto at = p.rings.begin(); at != p.rings.end();) {
    bool finished = (*at)->finished.load(std::memory_order_acquire);
    batches.push_back(Batch{(*at)->thread(), {}});
    try {
      (*at)->take(&batches.back().events);
    } catch (...) {
      finished = false;  // no memory: it stays in the ring
    }
    at = finished ? p.rings.erase(at) : at + 1;
  }
  return batches;
}

bool write_names(Process& p) noexcept try {
  std::string texts;
  const std::uint32_t next = names->append_since(p.strings_written, &texts);
  if (!texts.empty() && !p.file.append(ChunkKind::kStrings, 0, texts.data(), texts.size())) return false;
  p.strings_written = next;
  return true;
} catch (...) {
  return false;
}

// Strings go before the events that name them: the events are taken first, so every name they use is interned.
void flush(Process& p) noexcept try {
  const std::vector<Batch> batches = take_events(p);
  const bool any = std::any_of(batches.begin(), batches.end(), [](const Batch& b) { return !b.events.empty(); });
  const bool named = any && write_names(p);
  for (const Batch& batch : batches) {
    const std::size_t count = batch.events.size();
    if (count == 0) continue;
    if (!named || !p.file.append(ChunkKind::kEvents, batch.thread, batch.events.data(), count * sizeof(Event))) {
      p.lost_writes += count;
    }
  }
  const LostCounts lost{p.lost_events, p.lost_names, p.lost_writes};
  const std::uint64_t total = lost.events + lost.names + lost.writes;
  if (total != p.lost_written && p.file.append(ChunkKind::kLost, 0, &lost, sizeof(lost))) p.lost_written = total;
} catch (...) {
  // No memory to take anything: the next flush will.
}

void* write_forever(void* argument) {
  auto& p = *static_cast<Process*>(argument);
  for (;;) {
    timespec until{};
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += kFlushNs;
    if (until.tv_nsec >= 1'000'000'000) {
      until.tv_nsec -= 1'000'000'000;
      ++until.tv_sec;
    }
    sem_timedwait(&p.wake, &until);
    const std::lock_guard<std::timed_mutex> lock(p.flush_mutex);
    flush(p);
  }
}

// The program's signals are its own threads' affair, so the writer takes none.
void start_writer(Process& p) {
  if (p.writer_started.exchange(true)) return;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t writer;
  if (pthread_create(&writer, nullptr, write_forever, &p) == 0) pthread_detach(writer);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

EventRing* ring_of_this_thread(Process& p) {
  if (ring != nullptr) return ring;
  auto made = std::make_unique<EventRing>(syscall(SYS_gettid));
  {
    const std::lock_guard<std::mutex> lock(p.rings_mutex);
    if (p.rings.size() >= kMostThreads) return nullptr;
    p.rings.push_back(std::move(made));
    ring = p.rings.back().get();
  }
  pthread_setspecific(thread_end, ring);
  start_writer(p);
  return ring;
}

void end_thread(void* argument) {
  ring = nullptr;
  static_cast<EventRing*>(argument)->finished.store(true, std::memory_order_release);
}

void before_fork() { names->mutex.lock(); }
void after_fork_in_parent() { names->mutex.unlock(); }
void after_fork_in_child() {
  names->mutex.unlock();
  ring = nullptr;
  pthread_setspecific(thread_end, nullptr);
  process = new (std::nothrow) Process(*folder);
}

void at_exit() {
  Process* p = process;
  if (p == nullptr) return;
  // The writer may be waiting for the disk.
  if (p->flush_mutex.try_lock_until(std::chrono::system_clock::now() + std::chrono::seconds(2))) {
    flush(*p);
    p->flush_mutex.unlock();
  }
}

}  // namespace

bool start(const char* chunk_folder) noexcept try {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (process != nullptr) return true;
  if (pthread_key_create(&thread_end, end_thread) != 0) return false;
  folder = new std::string(chunk_folder);
  names = new Names();
  process = new Process(*folder);
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  std::atexit(at_exit);
  return true;
} catch (...) {
  return false;
}

std::uint32_t intern(std::string_view text) noexcept {
  std::uint32_t id = Names::kDropped;
  try {
    id = names->intern(text);
  } catch (...) {
    id = Names::kDropped;
  }
  if (id == Names::kDropped) {
    if (Process* p = process) ++p->lost_names;
  }
  return id;
}

void record(const Event& event) noexcept {
  Process* p = process;
  if (p == nullptr) return;
  try {
    if (EventRing* mine = ring_of_this_thread(*p)) {
      const bool taken = event.kind == EventKind::kPush  ? mine->push(event)
                         : event.kind == EventKind::kPop ? mine->pop(event)
                                                         : mine->mark(event);
      if (!taken) ++p->lost_events;
      if (mine->half_full()) sem_post(&p->wake);
      return;
    }
  } catch (...) {
    // No memory for a ring.
  }
  if (event.kind != EventKind::kPop) ++p->lost_events;
}

}  // namespace curvescope::recorder
