#include "recorder.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "activity.h"
#include "chunk_writer.h"
#include "event_ring.h"
#include "names.h"
#include "shared_counts.h"

namespace curvescope::recorder {
namespace {

constexpr long kFlushNs = 10'000'000;  // longest time of ranges that a killed process loses
constexpr char kFolderVariable[] = "CURVESCOPE_CHUNK_FOLDER";

// All state of one process. A forked child creates its own and leaks the parent's, whose locks may be held by threads
// that the child does not have.
struct Process {
  Process() { sem_init(&wake, 0, 0); }

  std::atomic<std::uint64_t> recording{0};  // number of the recording; 0 while not recording
  std::mutex rings_mutex;
  std::vector<std::unique_ptr<EventRing>> rings;
  std::atomic<SharedCounts*> counts{nullptr};
  // Counts are shared only if another process reads them; a process that records itself does not need this.
  std::atomic<bool> shares_counts{false};
  std::timed_mutex flush_mutex;  // guards the next three
  std::unique_ptr<ChunkWriter> writer;
  std::size_t numbers_written = 0;
  std::uint64_t lost_written = 0;
  std::atomic<std::uint64_t> lost_events{0};
  std::atomic<std::uint64_t> lost_names{0};
  std::atomic<std::uint64_t> lost_writes{0};
  std::atomic<bool> writer_started{false};
  sem_t wake;
};

// Names of numbered categories and threads. Programs set them once, so they are kept for every recording.
struct Numbers {
  static constexpr std::size_t kMost = 4096;
  std::mutex mutex;  // held over fork
  std::vector<std::array<std::uint64_t, 4>> rows;
};

std::string* folder = nullptr;
Numbers* numbers = nullptr;
Names* names = nullptr;  // outlives every thread, like all of these: nothing is destroyed at exit
std::atomic<Process*> process{nullptr};
std::mutex start_mutex;
std::uint64_t recordings = 0;
pthread_key_t thread_end;
thread_local EventRing* ring = nullptr;

// The caller holds the mutex of the rings. Created on first use, because few forked children have anything to count.
SharedCounts* counts_of(Process& p) noexcept {
  if (p.shares_counts.exchange(false)) p.counts = SharedCounts::create(*folder);
  return p.counts;
}

// A slot that no ring counts into; null if there is none.
SharedCount* free_slot(Process& p) noexcept {
  SharedCounts* counts = counts_of(p);
  if (counts == nullptr) return nullptr;
  for (SharedCounts::Thread& slot : counts->threads) {
    const auto counts_into = [&slot](const auto& one) { return one->begun() == &slot.begun; };
    if (std::none_of(p.rings.begin(), p.rings.end(), counts_into)) return &slot.begun;
  }
  return nullptr;
}

void count_dropped(Process& p) noexcept {
  ++p.lost_events;
  if (SharedCounts* counts = p.counts) ++counts->dropped;
}

void count_unwritten(Process& p, std::uint64_t count) noexcept {
  p.lost_writes += count;
  if (SharedCounts* counts = p.counts) counts->unwritten += count;
}

struct Batch {
  std::int64_t thread;
  std::vector<Event> events;
};

// Only the first allocation may throw, before anything is taken: no event is lost without being counted.
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
      finished = false;  // no memory: the events stay in the ring
    }
    at = finished ? p.rings.erase(at) : at + 1;
  }
  return batches;
}

void write_numbers(Process& p) noexcept try {
  std::vector<std::array<std::uint64_t, 4>> fresh;
  {
    const std::lock_guard<std::mutex> lock(numbers->mutex);
    fresh.assign(numbers->rows.begin() + static_cast<std::ptrdiff_t>(p.numbers_written), numbers->rows.end());
  }
  if (fresh.empty()) return;
  Columns table("numbers", {{"what", true}, {"domain", true}, {"number"}, {"name", true}});
  for (const auto& row : fresh) {
    if (!table.full()) table.append(row);
  }
  p.writer->write_table(&table);
  p.numbers_written += fresh.size();
} catch (...) {
  // No memory: the next flush writes them.
}

// The events are taken before the strings are written, so every name they use is interned.
void flush_events(Process& p) noexcept try {
  for (const Batch& batch : take_events(p)) {
    const auto& events = batch.events;
    if (events.empty() || p.writer->write_events(batch.thread, events.data(), events.size())) continue;
    const auto begun = std::count_if(events.begin(), events.end(), [](const Event& e) { return begins(e.kind); });
    count_unwritten(p, static_cast<std::uint64_t>(begun));
  }
} catch (...) {
  // No memory: the next flush takes the events.
}

void write_losses(Process& p) noexcept {
  const LostCounts lost{p.lost_events, p.lost_names, p.lost_writes};
  const std::uint64_t total = lost.events + lost.names + lost.writes;
  if (total != p.lost_written && p.writer->write_lost(lost)) p.lost_written = total;
  p.writer->write_losses();
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
    if (p.recording.load(std::memory_order_relaxed) == 0) {
      sem_wait(&p.wake);
    } else {
      sem_timedwait(&p.wake, &until);
    }
    const std::lock_guard<std::timed_mutex> lock(p.flush_mutex);
    if (p.writer == nullptr) continue;
    flush_events(p);
    activity::drain(p.writer.get());
    write_numbers(p);
    write_losses(p);
  }
}

// The writer blocks all signals, so that the program's own threads handle them.
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
  {
    const std::lock_guard<std::mutex> lock(p.rings_mutex);
    if (p.rings.size() >= kMostThreads) return nullptr;
    p.rings.push_back(std::make_unique<EventRing>(syscall(SYS_gettid), free_slot(p)));
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

void before_fork() {
  numbers->mutex.lock();
  names->mutex.lock();
}
void after_fork_in_parent() {
  names->mutex.unlock();
  numbers->mutex.unlock();
}
void after_fork_in_child() {
  after_fork_in_parent();
  ring = nullptr;
  pthread_setspecific(thread_end, nullptr);
  activity::abandon();
  const Process* parent = process;
  auto* made = new (std::nothrow) Process;
  const std::uint64_t recording = parent == nullptr ? 0 : parent->recording.load();
  if (made != nullptr && recording != 0) {
    made->writer.reset(new (std::nothrow) ChunkWriter(*folder, names));
    made->recording = made->writer == nullptr ? 0 : recording;
    made->shares_counts = true;
  }
  process = made;
}

// Runs twice with CUPTI: once before CUPTI's own exit handler, and once for later events.
void at_exit() {
  Process* p = process;
  if (p == nullptr || p->recording == 0) return;
  activity::yield_to_exit();
  // The writer may be waiting for the disk; the exit of the process waits no longer than this.
  std::unique_lock<std::timed_mutex> lock(p->flush_mutex, std::defer_lock);
  if (!lock.try_lock_until(std::chrono::system_clock::now() + std::chrono::seconds(2))) return activity::give_up();
  if (p->writer == nullptr) return;
  flush_events(*p);
  activity::finish(p->writer.get());
  write_numbers(*p);
  write_losses(*p);
}

bool prepare() {
  if (process != nullptr) return true;
  if (pthread_key_create(&thread_end, end_thread) != 0) return false;
  folder = new std::string;
  names = new Names();
  numbers = new Numbers();
  process = new Process();
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  std::atexit(at_exit);
  return true;
}

}  // namespace

bool start(const char* chunk_folder) noexcept try {
  const std::lock_guard<std::mutex> lock(start_mutex);
  if (!prepare()) return false;
  Process& p = *process;
  if (p.recording != 0) return false;
  const std::lock_guard<std::timed_mutex> flush_lock(p.flush_mutex);
  take_events(p);  // discards late events of the previous recording
  *folder = chunk_folder;
  p.writer = std::make_unique<ChunkWriter>(*folder, names);
  p.lost_events = p.lost_names = p.lost_writes = p.lost_written = 0;
  p.numbers_written = 0;
  p.recording = ++recordings;
  sem_post(&p.wake);
  return true;
} catch (...) {
  return false;
}

bool start_injected() noexcept {
  const char* wanted = std::getenv(kFolderVariable);
  if (wanted == nullptr || *wanted == 0) return false;
  const bool started = start(wanted);
  Process* p = process;
  if (started) p->shares_counts = true;
  return started || (p != nullptr && p->recording != 0);
}

void start_cupti() noexcept try {
  Process* p = process;
  if (p == nullptr || p->recording == 0) return;
  {
    const std::lock_guard<std::mutex> lock(p->rings_mutex);
    counts_of(*p);
  }
  activity::start(names);
  std::atexit(at_exit);
  start_writer(*p);
} catch (...) {
  // Without memory, nothing is recorded.
}

void stop() noexcept {
  const std::lock_guard<std::mutex> lock(start_mutex);
  Process* p = process;
  if (p == nullptr || p->recording == 0) return;
  p->recording = 0;
  const std::lock_guard<std::timed_mutex> flush_lock(p->flush_mutex);
  flush_events(*p);
  activity::stop(p->writer.get());
  write_numbers(*p);
  write_losses(*p);
  p->writer.reset();
}

bool is_prepared() noexcept { return process != nullptr; }

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

bool record(const Event& event) noexcept {
  Process* p = process;
  if (p == nullptr) return false;
  const std::uint64_t recording = p->recording.load(std::memory_order_relaxed);
  if (recording == 0) return false;
  try {
    if (EventRing* mine = ring_of_this_thread(*p)) {
      mine->enter(recording);
      const bool taken = event.kind == EventKind::kPush  ? mine->push(event)
                         : event.kind == EventKind::kPop ? mine->pop(event)
                                                         : mine->mark(event);
      if (!taken) count_dropped(*p);
      if (mine->half_full()) sem_post(&p->wake);
      return taken;
    }
  } catch (...) {
    // No memory for a ring.
  }
  if (event.kind != EventKind::kPop) count_dropped(*p);
  return false;
}

void name_number(const char* what, std::uint32_t domain, std::uint64_t number, std::uint32_t name) noexcept try {
  const std::uint32_t kind = intern(what);
  const std::lock_guard<std::mutex> lock(numbers->mutex);
  if (numbers->rows.size() < Numbers::kMost) numbers->rows.push_back({kind, domain, number, name});
} catch (...) {
  // No memory: the number stays without a name.
}

SharedCounts* shared_counts() noexcept {
  const Process* p = process;
  return p == nullptr ? nullptr : p->counts.load();
}

void wake() noexcept {
  if (Process* p = process) sem_post(&p->wake);
}

}  // namespace curvescope::recorder
