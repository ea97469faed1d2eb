#include "activity.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "activity_buffers.h"
#include "cupti_api.h"
#include "curvescope/collector.h"
#include "driver.h"
#include "facts.h"
#include "graphs.h"
#include "raw_buffers.h"
#include "record_reader.h"
#include "recorder.h"
#include "shared_memory.h"

namespace curvescope::activity {
namespace {

constexpr std::int64_t kFlushNs = 50'000'000;  // with the span of a buffer and the writer's period less than 100 ms
constexpr std::uint32_t kMostCalls = 2048;     // number of callback ids to try
constexpr std::uint32_t kFirstWithGraphsAgain = 130101;  // CUDA 13.1 update 1
constexpr std::uint32_t kFirstThatTakesNull = 27;  // CUDA 12.9; an older CUPTI crashes the program without a buffer

struct Kind {
  CUpti_ActivityKind kind;
  const char* name;
};

// Not CUPTI_ACTIVITY_KIND_KERNEL, which would make kernels run one after the other.
constexpr Kind kKinds[] = {
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, "kernels"}, {CUPTI_ACTIVITY_KIND_MEMCPY, "copies"},
    {CUPTI_ACTIVITY_KIND_MEMCPY2, "peer copies"},       {CUPTI_ACTIVITY_KIND_MEMSET, "sets"},
    {CUPTI_ACTIVITY_KIND_MEMORY2, "allocations"},       {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, "synchronisation"},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, "overheads"},        {CUPTI_ACTIVITY_KIND_DEVICE, "devices"},
    {CUPTI_ACTIVITY_KIND_CONTEXT, "contexts"},          {CUPTI_ACTIVITY_KIND_ENVIRONMENT, "clocks"},
};

// What CUPTI records by itself, also when the program does no GPU work any more: a sample of the clocks each 50 ms,
// from a thread of its own, and behind a flush a record of it (seen with 13.0 on an H100).
constexpr CUpti_ActivityKind kOwnKinds[] = {CUPTI_ACTIVITY_KIND_ENVIRONMENT, CUPTI_ACTIVITY_KIND_OVERHEAD};

struct Attribute {
  std::uint32_t number;
  std::uint8_t value;
  std::uint8_t usual;  // the header's default, where CUPTI does not tell its value
  bool any_time;       // whether it may change while records are collected, also by the client that a pause lets in
};

// By number: the header may be older or newer. A libcupti that does not know one refuses it and does without.
constexpr Attribute kAttributes[] = {
    // CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER: else CUPTI zeroes buffers in the user's threads
    {5, 1, 0, true},
    // CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER: a buffer per thread loses one per thread with a process
    {9, 0, 1, false},
};

struct Session {
  Session(CuptiFound cupti, Names* names) : found(std::move(cupti)), reader(found.api, found.version, names) {}

  const CuptiFound found;
  RecordReader reader;
  ActivityBuffers buffers;
  const std::unique_ptr<RawBuffers> raw = RawBuffers::from_environment();
  CUpti_SubscriberHandle subscriber = nullptr;  // null if another client is subscribed and idle
  SharedCounts* const counts = recorder::shared_counts();
  std::uint64_t buffers_read = 0;  // read by the writer, not yet on disk
  std::int64_t next_flush_ns = 0;
  std::atomic<bool> active{false};
  int starts = 0;
  bool gave_clock = false;
  bool taken = false;          // another client took the buffers
  std::string clocks_refused;  // with what words, until they are asked for again
  std::uint64_t probes_answered = 0;
  int probes_unanswered = 0;
  std::array<std::uint8_t, std::size(kAttributes)> attributes_before{};
  bool is_paused = false;
  std::uint64_t pauses = 0;
  std::int64_t paused_ns = 0;
  std::int64_t paused_since_ns = 0;
};

// Never freed: CUPTI may call back until the process is gone.
std::atomic<Session*> session{nullptr};
std::atomic<bool> exiting{false};
std::atomic<bool> gone{false};
std::atomic<bool> shared{false};
std::atomic<std::uint64_t> foreign_buffers{0};  // of another client, whose place this one took

constexpr CUptiResult kOtherSubscriber = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;

// Empty if the call succeeded.
std::string failure(const CuptiApi& api, const char* call, CUptiResult result) {
  if (result == CUPTI_SUCCESS) return "";
  const char* name = nullptr;
  if (api.GetResultString(result, &name) != CUPTI_SUCCESS || name == nullptr) name = "an unknown error";
  return std::string(call) + ": " + name + " (" + std::to_string(static_cast<int>(result)) + ")";
}

std::string in_words(CUptiResult result) {
  switch (result) {
    case kOtherSubscriber:
      return "Another profiler has CUPTI in this process; stop it to record GPU work.";
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "The driver lets only administrators profile (ERR_NVGPUCTRPERM): ask one to load the nvidia module with "
             "NVreg_RestrictProfilingToAdminUsers=0.";
    default:
      return "libcupti refused to start.";
  }
}

std::uint64_t CUPTIAPI monotonic_ns() { return static_cast<std::uint64_t>(curvescope_clock_ns()); }

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  Session* s = session.load(std::memory_order_acquire);
  *bytes = 0;
  *buffer = s == nullptr ? nullptr : s->buffers.request(s->found.version < kFirstThatTakesNull, bytes);
  if (*buffer != nullptr && s->counts != nullptr) ++s->counts->gpu_buffers;
  *most_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid_bytes) {
  Session* s = session.load(std::memory_order_acquire);
  if (s == nullptr || buffer == nullptr) return;
  if (s->buffers.complete(buffer, valid_bytes)) {
    recorder::wake();
  } else {
    foreign_buffers.fetch_add(1, std::memory_order_relaxed);
  }
}

struct Calls {
  CUpti_ActivityKind kind;
  CUpti_CallbackDomain domain;
  decltype(CuptiApi::ActivityEnableRuntimeApi) CuptiApi::* choose;
  const char* name;
};

constexpr Calls kCalls[] = {
    {CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_CB_DOMAIN_RUNTIME_API, &CuptiApi::ActivityEnableRuntimeApi, "runtime calls"},
    {CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_CB_DOMAIN_DRIVER_API, &CuptiApi::ActivityEnableDriverApi, "driver calls"},
};

// Collects the wanted calls: the kind, less the other calls. Not the wanted calls alone: where a CUDA context exists,
// or the kind was disabled before, CUPTI accepts that and records none (seen with 13.0 on an H100). A CUPTI that
// selects no calls records all, and the reader drops those that are not wanted.
CUptiResult enable_calls(const CuptiApi& api, const Calls& calls) noexcept {
  const CUptiResult result = api.ActivityEnable(calls.kind);
  const auto choose = api.*calls.choose;
  for (std::uint32_t id = 1; result == CUPTI_SUCCESS && choose != nullptr && id < kMostCalls; ++id) {
    const char* name = nullptr;
    if (api.GetCallbackName(calls.domain, id, &name) != CUPTI_SUCCESS || name == nullptr) continue;
    if (!RecordReader::is_wanted(name) && !RecordReader::is_probe(name)) choose(id, 0);
  }
  return result;
}

void set_attribute(const CuptiApi& api, const Attribute& attribute, std::uint8_t value) noexcept {
  std::size_t bytes = sizeof(value);
  if (api.ActivitySetAttribute != nullptr)
    api.ActivitySetAttribute(static_cast<CUpti_ActivityAttribute>(attribute.number), &bytes, &value);
}

void set_attributes(Session* s, bool after_pause) noexcept {
  const CuptiApi& api = s->found.api;
  for (std::size_t i = 0; i < std::size(kAttributes); ++i) {
    const Attribute& attribute = kAttributes[i];
    if (after_pause && !attribute.any_time) continue;  // a pause leaves it
    std::uint8_t before[sizeof(std::size_t)] = {};     // as wide as the widest attribute
    std::size_t bytes = sizeof(before);
    const bool is_known = api.ActivityGetAttribute != nullptr &&
                          api.ActivityGetAttribute(static_cast<CUpti_ActivityAttribute>(attribute.number), &bytes,
                                                   before) == CUPTI_SUCCESS;
    s->attributes_before[i] = is_known ? before[0] : attribute.usual;
    set_attribute(api, attribute, attribute.value);
  }
}

// For the next client, whose buffers are not zeroed.
void restore_attributes(const Session* s, bool for_pause) noexcept {
  for (std::size_t i = 0; i < std::size(kAttributes); ++i) {
    if (kAttributes[i].any_time || !(s->taken || for_pause))
      set_attribute(s->found.api, kAttributes[i], s->attributes_before[i]);
  }
}

// Subscribes, so that no other client begins meanwhile. Records need no subscriber: where another client holds the only
// place and is known to be idle, the collector goes on without.
CUptiResult subscribe(Session* s, bool other_is_idle) noexcept {
  const CuptiApi& api = s->found.api;
  const CUptiResult result = api.Subscribe(&s->subscriber, graphs::note_node, const_cast<CuptiApi*>(&api));
  if (result == CUPTI_SUCCESS) return result;
  s->subscriber = nullptr;
  return result == kOtherSubscriber && other_is_idle ? CUPTI_SUCCESS : result;
}

void unsubscribe(Session* s) noexcept {
  if (s->subscriber != nullptr) s->found.api.Unsubscribe(s->subscriber);
  s->subscriber = nullptr;
}

// Whether CUPTI's clock is the collector's, as it stays after a recording unless another client gave its own.
bool has_our_clock(const CuptiApi& api) noexcept {
  std::uint64_t cupti_ns = 0;
  const std::uint64_t before = monotonic_ns();
  return api.GetTimestamp(&cupti_ns) == CUPTI_SUCCESS && before <= cupti_ns && cupti_ns <= monotonic_ns();
}

// Once: of a clock that is given again CUPTI makes times that are off by 1e14 ns (pytorch/pytorch#192021). Where it has
// to be, because another client's replaced it, the reader drops such records.
void give_clock(Session* s) {
  const CuptiApi& api = s->found.api;
  if (api.ActivityRegisterTimestampCallback == nullptr || has_our_clock(api)) return;
  const std::string error = failure(api, "timestamps", api.ActivityRegisterTimestampCallback(monotonic_ns));
  if (!error.empty()) facts::add("cupti.refused", error);
  if (error.empty() && s->gave_clock) s->reader.distrust_times();
  s->gave_clock |= error.empty();
}

// The status in words.
std::string begin(Session* s, bool after_pause) {
  const CuptiApi& api = s->found.api;
  CUptiResult result = s->subscriber != nullptr ? graphs::watch(api, s->subscriber) : kOtherSubscriber;
  if (result != CUPTI_SUCCESS) facts::add("cupti.refused", failure(api, "nodes of CUDA graphs", result));
  set_attributes(s, after_pause);
  give_clock(s);
  // The system's thread ids, like those of NVTX ranges.
  result = api.SetThreadIdType != nullptr ? api.SetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM)
                                          : CUPTI_ERROR_NOT_SUPPORTED;
  if (result != CUPTI_SUCCESS) facts::add("cupti.refused", failure(api, "thread ids", result));
  result = api.ActivityRegisterCallbacks(give_buffer, take_buffer);
  if (result != CUPTI_SUCCESS) {
    restore_attributes(s, after_pause);
    unsubscribe(s);
    return in_words(result) + " " + failure(api, "cuptiActivityRegisterCallbacks", result);
  }
  s->next_flush_ns = curvescope_clock_ns() + kFlushNs;
  s->active = true;
  s->taken = false;
  s->probes_answered = s->reader.probes();
  s->probes_unanswered = 0;
  ++s->starts;
  std::string status = "recording";
  s->clocks_refused.clear();
  for (const Kind& kind : kKinds) {
    result = api.ActivityEnable(kind.kind);
    if (result == CUPTI_SUCCESS) continue;
    const std::string error = failure(api, kind.name, result);
    if (kind.kind == CUPTI_ACTIVITY_KIND_ENVIRONMENT) {
      s->clocks_refused = error;
      continue;
    }
    facts::add("cupti.refused", error);
    if (kind.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) status = in_words(result) + " " + error;
  }
  for (const Calls& calls : kCalls) {
    const std::string error = failure(api, calls.name, enable_calls(api, calls));
    if (!error.empty()) facts::add("cupti.refused", error);
  }
  return status;
}

void read_buffers(Session* s, ChunkWriter* writer, bool in_exit) noexcept {
  ActivityBuffers::Full full{};
  bool any = false;
  // Threads that go on at the exit may fill buffers as fast as they are read.
  const std::uint64_t end = s->buffers.completed();
  while ((in_exit || !exiting) && !gone && s->buffers.take(&full, end)) {
    if (s->raw != nullptr && !s->raw->save(s->found.api, s->found.version, full.data, full.bytes))
      writer->lose("raw_buffers", 1);
    s->reader.read(full.data, full.bytes, gone, writer);
    s->buffers.release(full.slot);
    ++s->buffers_read;
    any = true;
  }
  if (const std::uint64_t unread = s->buffers.take_unread(); unread != 0) {
    writer->lose("cupti_unread", unread);
    s->buffers_read += unread;
  }
  if (any && !gone) {
    std::size_t dropped = 0;
    if (s->found.api.ActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS && dropped != 0)
      writer->lose("cupti_dropped", dropped);
  }
}

// The buffers that were read no longer count as unsaved, once what was lost of them is on the disk, too.
void settle_buffers(Session* s, const ChunkWriter* writer) noexcept {
  if (writer->owes_losses()) return;
  if (s->counts != nullptr) s->counts->gpu_buffers -= s->buffers_read;
  s->buffers_read = 0;
}

// Writes the rows of the buffers that were read.
void write_rows(Session* s, ChunkWriter* writer) noexcept {
  s->reader.write(writer);
  graphs::write(writer);
  settle_buffers(s, writer);
}

// Keeps the narrowest of a few brackets: interruptions between the readings widen them.
void sample_clock(Session* s, ChunkWriter* writer) noexcept {
  constexpr int kTries = 5;
  std::int64_t before = 0;
  std::int64_t after = 0;
  std::uint64_t cupti_ns = 0;
  bool any = false;
  for (int i = 0; i < kTries; ++i) {
    std::uint64_t read_ns = 0;
    const std::int64_t from = curvescope_clock_ns();
    if (s->found.api.GetTimestamp(&read_ns) != CUPTI_SUCCESS) continue;
    const std::int64_t to = curvescope_clock_ns();
    if (any && to - from >= after - before) continue;
    before = from;
    after = to;
    cupti_ns = read_ns;
    any = true;
  }
  if (any) s->reader.add_clock_sample(before, cupti_ns, after, writer);
}

// Another client has the buffers. It may need the kinds that are enabled, so they stay so.
void give_place(Session* s, ChunkWriter* writer) noexcept {
  if (s->taken) return;
  s->taken = true;
  writer->lose("cupti_taken", 1);
  facts::add("cupti.status",
             "Another client of CUPTI in this process took the collector's place: GPU work after that is missing.");
}

// CUPTI has one pair of callbacks, and does not tell who loses it. So the collector makes a call of its own before each
// flush, of which it must get a record. Where CUPTI never told of one, nothing is concluded; while CUPTI has a buffer,
// not before the end.
void check_place(Session* s, ChunkWriter* writer) noexcept {
  constexpr int kMostUnanswered = 6;  // 300 ms
  const bool answered = s->reader.probes() != s->probes_answered;
  // A buffer of ours at CUPTI may hold the record.
  if (answered || s->buffers.any_given()) s->probes_unanswered = 0;
  s->probes_answered = s->reader.probes();
  if (s->probes_unanswered++ >= kMostUnanswered && s->probes_answered != 0) give_place(s, writer);
}

// Before a flush, which then returns its record if no other record in the buffer is unfinished.
void probe(const Session* s) noexcept {
  if (!s->taken) driver::version();
}

// Returns whether all buffers came back that CUPTI had.
bool flush(Session* s, ChunkWriter* writer) noexcept {
  read_buffers(s, writer, true);  // makes room for new ones
  const std::uint64_t given = s->buffers.given();
  const CUptiResult result = s->found.api.ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  read_buffers(s, writer, true);
  write_rows(s, writer);
  return result != CUPTI_SUCCESS || !s->buffers.any_given(given);
}

// Flushes until all buffers came back, or for half a second: CUPTI's own thread may hold one that is full. Returns
// whether they came back.
bool flush_all(Session* s, ChunkWriter* writer) noexcept {
  constexpr int kTries = 50;
  constexpr timespec kPause = {0, 10'000'000};
  for (int i = 1; !flush(s, writer); ++i) {
    if (i == kTries || s->taken || gone) return false;
    nanosleep(&kPause, nullptr);
  }
  return true;
}

// Whether the buffers are still the collector's, at its end. Where CUPTI tells of the collector's own call, that
// decides; a buffer that did not come back is then counted as unsaved.
bool keeps_place(Session* s, ChunkWriter* writer) noexcept {
  const std::uint64_t answered = s->reader.probes();
  probe(s);
  const bool complete = flush_all(s, writer);
  return answered != 0 ? s->reader.probes() != answered : complete;
}

// Before the last flush, behind which CUPTI would ask for one more buffer.
void disable_own_kinds(const Session* s) noexcept {
  if (s->taken) return;
  for (const CUpti_ActivityKind kind : kOwnKinds) s->found.api.ActivityDisable(kind);
}

// Whether a buffer has no record, or clocks alone: of a sample that was under way when they were disabled. CUPTI got it
// zeroed, and fills it from its beginning (so were all buffers that an H100 gave).
bool holds_no_work(const std::uint8_t* data, std::size_t bytes) noexcept {
  std::size_t at = 0;
  for (; at + sizeof(CUpti_ActivityEnvironment) <= bytes; at += sizeof(CUpti_ActivityEnvironment)) {
    if (reinterpret_cast<const CUpti_Activity*>(data + at)->kind != CUPTI_ACTIVITY_KIND_ENVIRONMENT) break;
  }
  return std::all_of(data + at, data + bytes, [](std::uint8_t byte) { return byte == 0; });
}

// Buffers that CUPTI keeps, and that hold no work, are no loss. What another thread launches from now on, while the
// process ends, may still come into one. Not where another client may have got them, and freed them.
void forgive_empty_buffers(Session* s) noexcept {
  if (s->counts == nullptr || s->taken || s->is_paused) return;
  s->counts->gpu_buffers -= s->buffers.count_given(holds_no_work);
}

// Waits for the device, writes all records and leaves CUPTI to others.
void end(Session* s, ChunkWriter* writer, bool for_pause) noexcept {
  disable_own_kinds(s);
  driver::wait_for_contexts();
  sample_clock(s, writer);
  if (!keeps_place(s, writer)) give_place(s, writer);
  if (!s->taken) {
    for (const Kind& kind : kKinds) s->found.api.ActivityDisable(kind.kind);
    for (const Calls& calls : kCalls) s->found.api.ActivityDisable(calls.kind);
    flush(s, writer);
  }
  restore_attributes(s, for_pause);
  unsubscribe(s);
  s->active = false;
}

void end_pause(Session* s) noexcept {
  s->is_paused = false;
  s->paused_ns += curvescope_clock_ns() - s->paused_since_ns;
}

// CUPTI refuses clocks where there is no context yet, as in a program that is recorded from its start (seen with 13.0
// on an H100), so they are asked for once more when there is a kernel.
void ask_for_clocks(Session* s) noexcept try {
  if (s->clocks_refused.empty() || s->taken || !s->reader.has_kernels()) return;
  const CUptiResult result = s->found.api.ActivityEnable(CUPTI_ACTIVITY_KIND_ENVIRONMENT);
  const std::string error = failure(s->found.api, "clocks", result);
  if (!error.empty()) facts::add("cupti.refused", error);
  s->clocks_refused.clear();
} catch (...) {
  // Without memory there are no clocks.
}

// What this CUPTI did not tell or tells wrongly.
void write_remarks(Session* s, ChunkWriter* writer) noexcept try {
  s->reader.add_missing_devices(writer);
  s->reader.write(writer);
  if (!s->clocks_refused.empty()) facts::add("cupti.refused", std::exchange(s->clocks_refused, ""));
  if (s->starts > 1 && s->found.version < kFirstWithGraphsAgain && s->reader.has_graphs()) {
    facts::add("cupti.note",
               "CUPTI before CUDA 13.1 update 1 gives launches of CUDA graphs wrong correlation ids after the first "
               "recording of a process: their kernels may have no layer.");
  }
  if (s->pauses != 0) {
    facts::add("cupti.pauses", std::to_string(s->pauses));
    facts::add("cupti.paused_ns", std::to_string(s->paused_ns));
    writer->lose("cupti_paused", s->pauses);
  }
  if (const std::uint64_t foreign = foreign_buffers.exchange(0); foreign != 0) writer->lose("cupti_foreign", foreign);
  s->pauses = 0;
  s->paused_ns = 0;
} catch (...) {
  writer->lose("facts", 1);
}

bool helps_no_other(CUptiResult refusal) {
  return refusal == kOtherSubscriber || refusal == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ||
         refusal == CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES;
}

// Makes the session of the first libcupti that starts; the status in words.
std::string start_first(Names* names) {
  if (!driver::load()) return "No CUDA driver (libcuda.so.1) on this machine: there is no GPU work to record.";
  const int driver_version = driver::version();
  if (driver_version != 0) facts::add("cuda.driver_version", std::to_string(driver_version));
  const CuptiSearch search = search_cupti(driver_version);
  std::string why_not = search.why_not;
  bool any_exists = false;
  bool any_refused = false;
  for (const std::string& path : search.paths) {
    CuptiFound found = load_cupti(path, driver_version);
    if (!found.usable) {
      if (!any_refused && (found.exists || !any_exists)) why_not = found.why_not;
      any_exists |= found.exists;
      continue;
    }
    facts::add("cupti.path", found.path);
    facts::add("cupti.version", std::to_string(found.version));
    auto made = std::make_unique<Session>(std::move(found), names);
    const CUptiResult result = subscribe(made.get(), shared);
    if (result == CUPTI_SUCCESS) {
      Session* s = made.release();
      s->buffers.prepare();
      session.store(s, std::memory_order_release);
      return begin(s, false);
    }
    why_not = in_words(result) + " " + failure(made->found.api, "cuptiSubscribe", result);
    if (helps_no_other(result)) break;
    if (!driver::sees_device()) return "No CUDA device is visible to this process: there is no GPU work to record.";
    any_refused = true;
  }
  return why_not;
}

std::string start_again(Session* s, bool other_is_idle, bool after_pause) {
  const CUptiResult result = subscribe(s, other_is_idle);
  if (result != CUPTI_SUCCESS) return in_words(result) + " " + failure(s->found.api, "cuptiSubscribe", result);
  return begin(s, after_pause);
}

}  // namespace

void start(Names* names) noexcept try {
  facts::prepare();
  Session* s = session;
  if (s != nullptr) {
    facts::add("cupti.path", s->found.path);
    facts::add("cupti.version", std::to_string(s->found.version));
    s->buffers.prepare();
  }
  facts::add("cupti.status", s == nullptr ? start_first(names) : start_again(s, shared, false));
} catch (...) {
  // Without memory, nothing is recorded and no reason can be given.
}

void drain(ChunkWriter* writer) noexcept {
  Session* s = session;
  if (s != nullptr && s->active && !exiting) {
    const std::int64_t now_ns = curvescope_clock_ns();
    if (now_ns >= s->next_flush_ns) {
      s->buffers.adapt(now_ns - s->next_flush_ns + kFlushNs);
      s->next_flush_ns = now_ns + kFlushNs;
      probe(s);
      s->found.api.ActivityFlushAll(0);
      sample_clock(s, writer);
      read_buffers(s, writer, false);
      if (!exiting) check_place(s, writer);
      if (!exiting) ask_for_clocks(s);
    }
    read_buffers(s, writer, false);
    write_rows(s, writer);
    s->buffers.prepare();
  }
  facts::write(writer);
}

void settle(const ChunkWriter* writer) noexcept {
  if (Session* s = session) settle_buffers(s, writer);
}

void yield_to_exit() noexcept { exiting = true; }

void give_up() noexcept { gone = true; }

void finish(ChunkWriter* writer, bool last) noexcept {
  Session* s = session;
  if (s != nullptr && s->active) {
    disable_own_kinds(s);
    sample_clock(s, writer);
    if (!flush_all(s, writer)) give_place(s, writer);
    s->active = false;
    write_remarks(s, writer);
  }
  if (last && s != nullptr) forgive_empty_buffers(s);
  facts::write(writer);
}

void stop(ChunkWriter* writer) noexcept {
  Session* s = session;
  if (s != nullptr && s->active) {
    end(s, writer, false);
    write_remarks(s, writer);
  } else if (s != nullptr && s->is_paused) {
    end_pause(s);
    write_remarks(s, writer);
  }
  facts::write(writer);
}

bool pause(ChunkWriter* writer) noexcept {
  Session* s = session;
  if (s == nullptr || !s->active || s->taken) return false;
  end(s, writer, true);
  s->is_paused = true;
  s->paused_since_ns = curvescope_clock_ns();
  ++s->pauses;
  return true;
}

bool resume() noexcept try {
  Session* s = session;
  if (s == nullptr || !s->is_paused) return false;
  end_pause(s);
  // The client that was let in may be subscribed for good.
  const std::string status = start_again(s, true, true);
  if (!s->active) facts::add("cupti.status", status);
  return s->active;
} catch (...) {
  return false;
}

void share(bool other_is_idle) noexcept { shared = other_is_idle; }

void abandon() noexcept {
  session = nullptr;
  graphs::abandon();
  facts::abandon();
}

}  // namespace curvescope::activity
