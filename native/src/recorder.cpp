#include "recorder.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
#include "curvescope/collector.h"
#include "event_ring.h"
#include "names.h"
#include "shared_memory.h"

namespace curvescope::recorder {
namespace {

constexpr long kFlushNs = 10'000'000;
constexpr std::size_t kEventsPerChunk = 2048;  // then their room in the ring is free again
constexpr char kFolderVariable[] = "CURVESCOPE_CHUNK_FOLDER";

// All state of one process. A forked child creates its own and leaks the parent's, whose locks may be held by threads
// that the child does not have.
struct Process {
  Process() { sem_init(&wake, 0, 0); }

  std::atomic<std::uint64_t> recording{0};  // number of the recording; 0 while not recording
  std::mutex rings_mutex;
  std::vector<std::unique_ptr<EventRing>> rings;
  std::uint64_t rings_made = 0;
  // Only if another process drains it: a process that records itself needs no shared memory.
  std::unique_ptr<SharedMemory> memory;
  std::atomic<SharedCounts*> counts{nullptr};
  std::unique_ptr<SharedLog> names_log;
  std::unique_ptr<SharedLog> numbers_log;
  std::atomic<std::uint64_t> unshared{0};  // blocks for which there was no shared memory
  std::timed_mutex flush_mutex;            // guards the next three
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
  std::vector<Number> rows;
  SharedLog* log = nullptr;  // has all rows too
};

std::string* folder = nullptr;
Numbers* numbers = nullptr;
Names* names = nullptr;  // outlives every thread, like all of these: nothing is destroyed at exit
// Empty in a child that was made without the handlers of fork: it must not write to its parent's rings.
struct alignas(4096) {
  std::atomic<Process*> process;
} wiped;
Process* last_process = nullptr;  // for the handlers of fork
std::mutex start_mutex;
std::uint64_t recordings = 0;
int exit_handlers = 0;  // registered, and not yet run
pthread_key_t thread_end;
thread_local EventRing* ring = nullptr;

Process* this_process() noexcept { return wiped.process; }

void set_process(Process* made) noexcept {
  last_process = made;
  wiped.process = made;
}

// The caller holds the mutex of the rings. Made on first use, because few forked children have anything to record.
SharedCounts* counts_of(Process& p) noexcept try {
  if (p.memory == nullptr || p.counts != nullptr) return p.counts;
  p.counts = p.memory->make<SharedCounts>(BlockKind::kProcess);
  if (p.counts == nullptr) {
    ++p.unshared;
    p.memory.reset();
    return nullptr;
  }
  struct stat about{};
  p.counts.load()->pid_namespace = stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
  p.names_log = std::make_unique<SharedLog>(p.memory.get(), BlockKind::kNames);
  p.numbers_log = std::make_unique<SharedLog>(p.memory.get(), BlockKind::kNumbers);
  if (!names->keep_in(p.names_log.get())) ++p.unshared;
  const std::lock_guard<std::mutex> lock(numbers->mutex);
  for (const Number& row : numbers->rows) p.numbers_log->append(&row, sizeof(row), nullptr, 0);
  numbers->log = p.numbers_log.get();
  return p.counts;
} catch (...) {
  return p.counts;
}

void count_dropped(Process& p) noexcept {
  ++p.lost_events;
  if (SharedCounts* counts = p.counts) ++counts->dropped;
}

void count_unwritten(Process& p, std::uint64_t count) noexcept {
  p.lost_writes += count;
  if (SharedCounts* counts = p.counts) counts->unwritten += count;
}

// Frees the empty rings of threads that have ended.
void free_finished(Process& p) {
  const std::lock_guard<std::mutex> lock(p.rings_mutex);
  for (auto at = p.rings.begin(); at != p.rings.end();) {
    EventRing& one = **at;
    if (!one.finished.load(std::memory_order_acquire) || one.oldest(1).count != 0) {
      ++at;
      continue;
    }
    if (p.counts != nullptr) p.counts.load()->begun += one.take_begun();
    at = p.rings.erase(at);
  }
}

// Writes or, without a writer, discards what lies in the rings. The events that a thread appends meanwhile may stay.
// What cannot be written, e.g. on a full disk, stays for the next flush, and at last for who drains the shared memory.
// Returns whether a ring is half full again.
bool flush_events(Process& p, bool last = false) noexcept try {
  std::vector<EventRing*> rings;
  {
    const std::lock_guard<std::mutex> lock(p.rings_mutex);
    rings.reserve(p.rings.size());
    for (const auto& one : p.rings) rings.push_back(one.get());
  }
  bool any_finished = false;
  bool half_full = false;
  for (EventRing* one : rings) {
    any_finished |= one->finished.load(std::memory_order_acquire);  // before its last events are taken
    bool written = true;
    std::size_t most = RingBlock::kCapacity;
    while (most != 0) {
      // Only then are the strings written: every name that the events use is interned.
      const EventRing::Piece piece = one->oldest(std::min(most, kEventsPerChunk));
      if (piece.count == 0) break;
      if (p.writer != nullptr && !p.writer->write_events(*one, piece)) {
        written = false;
        if (!last || one->is_shared()) break;
        const auto begun =
            std::count_if(piece.events, piece.events + piece.count, [](const Event& e) { return begins(e.kind); });
        count_unwritten(p, static_cast<std::uint64_t>(begun));
      }
      one->release(piece);
      most -= piece.count;
    }
    half_full |= written && one->held() >= RingBlock::kCapacity / 2;
  }
  if (any_finished) free_finished(p);
  return half_full;
} catch (...) {
  return false;  // no memory: the next flush takes the events
}

void write_numbers(Process& p) noexcept try {
  std::vector<Number> fresh;
  {
    const std::lock_guard<std::mutex> lock(numbers->mutex);
    fresh.assign(numbers->rows.begin() + static_cast<std::ptrdiff_t>(p.numbers_written), numbers->rows.end());
  }
  if (!fresh.empty() && p.writer->write_numbers(p.numbers_written, fresh)) p.numbers_written += fresh.size();
} catch (...) {
  // No memory: the next flush writes them.
}

void write_losses(Process& p) noexcept {
  const LostCounts lost{p.lost_events, p.lost_names, p.lost_writes};
  const std::uint64_t total = lost.events + lost.names + lost.writes;
  if (total != p.lost_written && p.writer->write_lost(lost)) p.lost_written = total;
  if (const std::uint64_t unshared = p.unshared.exchange(0)) p.writer->lose("memory_not_shared", unshared);
  p.writer->write_losses();
  if (SharedCounts* counts = p.counts) counts->unsaid = p.writer->unsaid_losses();
  activity::settle(p.writer.get());
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
    if (flush_events(p)) sem_post(&p.wake);  // at once again
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

EventRing* make_ring(Process& p) {
  {
    const std::lock_guard<std::mutex> lock(p.rings_mutex);
    if (p.rings.size() >= kMostThreads) return nullptr;
    counts_of(p);
    p.rings.reserve(p.rings.size() + 1);
    RingBlock* shared = p.memory == nullptr ? nullptr : p.memory->make<RingBlock>(BlockKind::kRing);
    if (p.memory != nullptr && shared == nullptr) ++p.unshared;
    p.rings.push_back(std::make_unique<EventRing>(++p.rings_made, syscall(SYS_gettid), shared));
    ring = p.rings.back().get();
  }
  pthread_setspecific(thread_end, ring);
  start_writer(p);
  return ring;
}

bool append(Process& p, EventRing& mine, std::uint64_t recording, const Event& event) {
  mine.enter(recording);
  const bool taken = event.kind == EventKind::kPush  ? mine.push(event)
                     : event.kind == EventKind::kPop ? mine.pop(event)
                                                     : mine.mark(event);
  if (!taken) count_dropped(p);
  if (mine.half_full()) sem_post(&p.wake);
  return taken;
}

void end_thread(void* argument) {
  ring = nullptr;
  static_cast<EventRing*>(argument)->finished.store(true, std::memory_order_release);
}

// The caller holds flush_mutex, or is alone.
void share_memory(Process& p) noexcept {
  if (p.writer == nullptr || p.memory != nullptr) return;
  p.memory.reset(new (std::nothrow) SharedMemory(*folder, p.writer->started_ns()));
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
  names->forget_log();
  numbers->log = nullptr;
  const Process* parent = last_process;
  auto* made = new (std::nothrow) Process;
  const std::uint64_t recording = parent == nullptr ? 0 : parent->recording.load();
  if (made != nullptr && recording != 0) {
    made->writer.reset(new (std::nothrow) ChunkWriter(*folder, names));
    made->recording = made->writer == nullptr ? 0 : recording;
    share_memory(*made);
  }
  set_process(made);
}

void set_exit(Process& p, Exit how) noexcept {
  if (SharedCounts* counts = p.counts) counts->exited = static_cast<std::uint64_t>(how);
}

// Runs twice with CUPTI: once before CUPTI's own exit handler, and once for later events.
void at_exit() {
  const bool last = --exit_handlers == 0;
  Process* p = this_process();
  if (p == nullptr || p->recording == 0) return;
  activity::yield_to_exit();
  // The writer may be waiting for the disk; the exit of the process waits no longer than this.
  std::unique_lock<std::timed_mutex> lock(p->flush_mutex, std::defer_lock);
  if (!lock.try_lock_until(std::chrono::system_clock::now() + std::chrono::seconds(2))) {
    set_exit(*p, Exit::kUnwritten);
    return activity::give_up();
  }
  if (p->writer == nullptr) return;
  flush_events(*p, true);
  activity::finish(p->writer.get(), last);
  write_numbers(*p);
  write_losses(*p);
  set_exit(*p, Exit::kWritten);
  // The process may end at any moment now: the writer stays locked out, or it would leave a torn chunk.
  if (last) lock.release();
}

void run_at_exit() { exit_handlers += std::atexit(at_exit) == 0; }

bool prepare() {
  if (names != nullptr) return this_process() != nullptr;
  if (pthread_key_create(&thread_end, end_thread) != 0) return false;
  folder = new std::string;
  names = new Names();
  numbers = new Numbers();
  madvise(&wiped, sizeof(wiped), MADV_WIPEONFORK);  // Linux 4.14
  set_process(new Process());
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  run_at_exit();
  return true;
}

}  // namespace

bool start(const char* chunk_folder) noexcept try {
  const std::lock_guard<std::mutex> lock(start_mutex);
  if (!prepare()) return false;
  Process& p = *this_process();
  if (p.recording != 0) return false;
  const std::lock_guard<std::timed_mutex> flush_lock(p.flush_mutex);
  flush_events(p);  // discards late events of the previous recording
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
  Process* p = this_process();
  if (started) {
    const std::lock_guard<std::timed_mutex> flush_lock(p->flush_mutex);
    const std::lock_guard<std::mutex> rings_lock(p->rings_mutex);
    share_memory(*p);
  }
  return started || (p != nullptr && p->recording != 0);
}

void start_cupti() noexcept try {
  Process* p = this_process();
  if (p == nullptr || p->recording == 0) return;
  {
    const std::lock_guard<std::mutex> lock(p->rings_mutex);
    counts_of(*p);
  }
  activity::start(names);
  run_at_exit();
  start_writer(*p);
} catch (...) {
  // Without memory, nothing is recorded.
}

void stop() noexcept {
  const std::lock_guard<std::mutex> lock(start_mutex);
  Process* p = this_process();
  if (p == nullptr || p->recording == 0) return;
  p->recording = 0;
  const std::lock_guard<std::timed_mutex> flush_lock(p->flush_mutex);
  flush_events(*p, true);
  activity::stop(p->writer.get());
  write_numbers(*p);
  write_losses(*p);
  p->writer.reset();
}

bool pause_cupti() noexcept {
  const std::lock_guard<std::mutex> lock(start_mutex);
  Process* p = this_process();
  if (p == nullptr || p->recording == 0) return false;
  const std::lock_guard<std::timed_mutex> flush_lock(p->flush_mutex);
  return activity::pause(p->writer.get());
}

bool resume_cupti() noexcept {
  const std::lock_guard<std::mutex> lock(start_mutex);
  Process* p = this_process();
  if (p == nullptr || p->recording == 0) return false;
  const std::lock_guard<std::timed_mutex> flush_lock(p->flush_mutex);
  return activity::resume();
}

bool is_prepared() noexcept { return this_process() != nullptr; }

std::uint32_t intern(std::string_view text) noexcept {
  Process* p = this_process();
  if (p == nullptr) return Names::kDropped;
  std::uint32_t id = Names::kDropped;
  try {
    id = names->intern(text);
  } catch (...) {
    id = Names::kDropped;
  }
  if (id == Names::kDropped) ++p->lost_names;
  return id;
}

bool record(const Event& event) noexcept {
  Process* p = this_process();
  if (p == nullptr) return false;
  const std::uint64_t recording = p->recording.load(std::memory_order_relaxed);
  if (recording == 0) return false;
  try {
    if (ring != nullptr) return append(*p, *ring, recording, event);
    if (EventRing* made = make_ring(*p)) {
      // It took the thread up to a millisecond, which is not part of its first range.
      Event later = event;
      later.time_ns = curvescope_clock_ns();
      return append(*p, *made, recording, later);
    }
  } catch (...) {
    // No memory for a ring.
  }
  if (event.kind != EventKind::kPop) count_dropped(*p);
  return false;
}

void name_number(const char* what, std::uint32_t domain, std::uint64_t number, std::uint32_t name) noexcept try {
  if (this_process() == nullptr) return;
  const Number row{intern(what), domain, number, name};
  const std::lock_guard<std::mutex> lock(numbers->mutex);
  if (numbers->rows.size() >= Numbers::kMost) return;
  numbers->rows.push_back(row);
  if (numbers->log != nullptr) numbers->log->append(&row, sizeof(row), nullptr, 0);
} catch (...) {
  // No memory: the number stays without a name.
}

SharedCounts* shared_counts() noexcept {
  const Process* p = this_process();
  return p == nullptr ? nullptr : p->counts.load();
}

void wake() noexcept {
  if (Process* p = this_process()) sem_post(&p->wake);
}

}  // namespace curvescope::recorder
