#include "activity.h"

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "activity_buffers.h"
#include "cupti_api.h"
#include "curvescope/collector.h"
#include "graphs.h"
#include "raw_buffers.h"
#include "record_reader.h"
#include "recorder.h"
#include "shared_memory.h"

namespace curvescope::activity {
namespace {

constexpr std::int64_t kFlushNs = 100'000'000;     // longest GPU work that a killed process loses
constexpr std::uint32_t kMostCalls = 2048;         // number of callback ids to try
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

struct Session {
  Session(CuptiFound cupti, std::uint32_t cupti_version, Names* names)
      : found(std::move(cupti)), version(cupti_version), reader(found.api, cupti_version, names) {}

  const CuptiFound found;
  const std::uint32_t version;
  RecordReader reader;
  ActivityBuffers buffers;
  const std::unique_ptr<RawBuffers> raw = RawBuffers::from_environment();
  CUpti_SubscriberHandle subscriber = nullptr;
  SharedCounts* const counts = recorder::shared_counts();
  std::uint64_t buffers_read = 0;  // read by the writer, not yet on disk
  std::int64_t next_flush_ns = 0;
  std::atomic<bool> active{false};
};

// Never freed: CUPTI may call back until the process is gone.
std::atomic<Session*> session{nullptr};
std::atomic<bool> exiting{false};
std::atomic<bool> gone{false};

struct Facts {
  std::mutex mutex;
  std::vector<std::pair<std::string, std::string>> waiting;  // key and value
};
std::atomic<Facts*> facts{nullptr};  // created with the session; null in a child without memory

void add_fact(const char* key, const std::string& value) {
  Facts* all = facts;
  if (all == nullptr) return;
  const std::lock_guard<std::mutex> lock(all->mutex);
  all->waiting.emplace_back(key, value);
}

void write_facts(ChunkWriter* writer) noexcept try {
  Facts* all = facts;
  if (all == nullptr) return;
  std::vector<std::pair<std::string, std::string>> taken;
  {
    const std::lock_guard<std::mutex> lock(all->mutex);
    taken.swap(all->waiting);
  }
  if (taken.empty()) return;
  Columns table("facts", {{"key", true}, {"value", true}});
  for (const auto& [key, value] : taken) {
    if (!table.full())
      table.append(std::array<std::uint64_t, 2>{writer->names()->intern(key), writer->names()->intern(value)});
  }
  writer->write_table(&table);
} catch (...) {
  writer->lose("facts", 1);
}

// Empty if the call succeeded.
std::string failure(const CuptiApi& api, const char* call, CUptiResult result) {
  if (result == CUPTI_SUCCESS) return "";
  const char* name = nullptr;
  if (api.GetResultString(result, &name) != CUPTI_SUCCESS || name == nullptr) name = "an unknown error";
  return std::string(call) + ": " + name + " (" + std::to_string(static_cast<int>(result)) + ")";
}

std::string in_words(CUptiResult result) {
  switch (result) {
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
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
  *buffer = s == nullptr ? nullptr : s->buffers.request(s->version < kFirstThatTakesNull);
  if (*buffer != nullptr && s->counts != nullptr) ++s->counts->gpu_buffers;
  *bytes = *buffer == nullptr ? 0 : ActivityBuffers::kBytes;
  *most_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid_bytes) {
  Session* s = session.load(std::memory_order_acquire);
  if (s == nullptr || buffer == nullptr) return;
  if (s->buffers.complete(buffer, valid_bytes)) recorder::wake();
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

// Starts or stops collecting only the wanted calls; false if this libcupti cannot select calls.
bool choose_calls(const CuptiApi& api, const Calls& calls, bool collect) noexcept {
  const auto choose = api.*calls.choose;
  if (choose == nullptr) return false;
  for (std::uint32_t id = 1; id < kMostCalls; ++id) {
    const char* name = nullptr;
    if (api.GetCallbackName(calls.domain, id, &name) != CUPTI_SUCCESS || name == nullptr) continue;
    if (RecordReader::is_wanted(name) && choose(id, collect ? 1 : 0) != CUPTI_SUCCESS) return false;
  }
  return true;
}

struct Attribute {
  std::uint32_t number;
  std::uint8_t value;
};

// By number: the header may be older or newer. A libcupti that does not know one refuses it and does without.
constexpr Attribute kAttributes[] = {
    {5, 1},  // CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER: else CUPTI zeroes buffers in the user's threads
    {9, 0},  // CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER: a buffer per thread loses one per thread with a process
};

std::string start_session(Session* s) {
  const CuptiApi& api = s->found.api;
  CUptiResult result = api.Subscribe(&s->subscriber, graphs::note_node, const_cast<CuptiApi*>(&api));
  if (result != CUPTI_SUCCESS) return in_words(result) + " " + failure(api, "cuptiSubscribe", result);
  result = graphs::watch(api, s->subscriber);
  if (result != CUPTI_SUCCESS) add_fact("cupti.refused", failure(api, "nodes of CUDA graphs", result));
  for (const Attribute& attribute : kAttributes) {
    std::size_t bytes = sizeof(attribute.value);
    std::uint8_t value = attribute.value;
    if (api.ActivitySetAttribute != nullptr)
      api.ActivitySetAttribute(static_cast<CUpti_ActivityAttribute>(attribute.number), &bytes, &value);
  }
  if (api.ActivityRegisterTimestampCallback != nullptr) {
    const std::string error = failure(api, "timestamps", api.ActivityRegisterTimestampCallback(monotonic_ns));
    if (!error.empty()) add_fact("cupti.refused", error);
  }
  // The system's thread ids, like those of NVTX ranges.
  result = api.SetThreadIdType != nullptr ? api.SetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM)
                                          : CUPTI_ERROR_NOT_SUPPORTED;
  if (result != CUPTI_SUCCESS) add_fact("cupti.refused", failure(api, "thread ids", result));
  result = api.ActivityRegisterCallbacks(give_buffer, take_buffer);
  if (result != CUPTI_SUCCESS) {
    api.Unsubscribe(s->subscriber);
    return in_words(result) + " " + failure(api, "cuptiActivityRegisterCallbacks", result);
  }
  s->next_flush_ns = curvescope_clock_ns() + kFlushNs;
  s->active = true;
  std::string status = "recording";
  for (const Kind& kind : kKinds) {
    result = api.ActivityEnable(kind.kind);
    if (result == CUPTI_SUCCESS) continue;
    const std::string error = failure(api, kind.name, result);
    add_fact("cupti.refused", error);
    if (kind.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) status = in_words(result) + " " + error;
  }
  for (const Calls& calls : kCalls) {
    if (choose_calls(api, calls, true)) continue;
    const std::string error = failure(api, calls.name, api.ActivityEnable(calls.kind));
    if (!error.empty()) add_fact("cupti.refused", error);
  }
  return status;
}

void read_buffers(Session* s, ChunkWriter* writer, bool in_exit) noexcept {
  ActivityBuffers::Full full{};
  bool any = false;
  // Threads that go on at the exit may fill buffers as fast as they are read.
  const std::uint64_t end = s->buffers.completed();
  while ((in_exit || !exiting) && !gone && s->buffers.take(&full, end)) {
    if (s->raw != nullptr && !s->raw->save(s->found.api, s->version, full.data, full.bytes))
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

// Writes the rows of the buffers that were read; these buffers no longer count as unsaved.
void write_rows(Session* s, ChunkWriter* writer) noexcept {
  s->reader.write(writer);
  graphs::write(writer);
  if (s->counts != nullptr) s->counts->gpu_buffers -= s->buffers_read;
  s->buffers_read = 0;
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

void flush(Session* s, ChunkWriter* writer) noexcept {
  sample_clock(s, writer);
  read_buffers(s, writer, true);  // makes room for new ones
  s->found.api.ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  read_buffers(s, writer, true);
  write_rows(s, writer);
}

// Waits for work that this thread launched, so that the recording of a block contains all of it.
void wait_for_device() noexcept {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return;
  auto* current = reinterpret_cast<int (*)(void**)>(dlsym(driver, "cuCtxGetCurrent"));
  auto* synchronize = reinterpret_cast<int (*)()>(dlsym(driver, "cuCtxSynchronize"));
  void* context = nullptr;
  if (current != nullptr && synchronize != nullptr && current(&context) == 0 && context != nullptr) synchronize();
}

}  // namespace

void start(Names* names) noexcept try {
  if (facts == nullptr) facts = new Facts;
  Session* s = session;
  if (s == nullptr) {
    CuptiFound found = find_cupti();
    if (found.driver_version != 0) add_fact("cuda.driver_version", std::to_string(found.driver_version));
    std::uint32_t version = 0;
    if (found.usable && found.api.GetVersion(&version) != CUPTI_SUCCESS) {
      found.usable = false;
      found.why_not = found.path + " does not say its version.";
    }
    if (!found.usable) return add_fact("cupti.status", found.why_not);
    s = new Session(std::move(found), version, names);
    session.store(s, std::memory_order_release);
  }
  add_fact("cupti.path", s->found.path);
  add_fact("cupti.version", std::to_string(s->version));
  s->buffers.prepare();
  add_fact("cupti.status", start_session(s));
} catch (...) {
  // Without memory, nothing is recorded and no reason can be given.
}

void drain(ChunkWriter* writer) noexcept {
  Session* s = session;
  if (s != nullptr && s->active && !exiting) {
    const std::int64_t now_ns = curvescope_clock_ns();
    if (now_ns >= s->next_flush_ns) {
      s->next_flush_ns = now_ns + kFlushNs;
      s->found.api.ActivityFlushAll(0);
      sample_clock(s, writer);
    }
    read_buffers(s, writer, false);
    write_rows(s, writer);
    s->buffers.prepare();
  }
  write_facts(writer);
}

void yield_to_exit() noexcept { exiting = true; }

void give_up() noexcept { gone = true; }

void finish(ChunkWriter* writer) noexcept {
  Session* s = session;
  if (s != nullptr && s->active) {
    flush(s, writer);
    s->active = false;
  }
  write_facts(writer);
}

void stop(ChunkWriter* writer) noexcept {
  Session* s = session;
  if (s != nullptr && s->active) {
    wait_for_device();
    for (const Kind& kind : kKinds) s->found.api.ActivityDisable(kind.kind);
    for (const Calls& calls : kCalls) {
      if (!choose_calls(s->found.api, calls, false)) s->found.api.ActivityDisable(calls.kind);
    }
    flush(s, writer);
    s->found.api.Unsubscribe(s->subscriber);
    s->active = false;
  }
  write_facts(writer);
}

void abandon() noexcept {
  session = nullptr;
  graphs::abandon();
  facts = new (std::nothrow) Facts;
}

}  // namespace curvescope::activity
