// A test double of libcupti: speaks the protocol of the Activity API (buffers requested and completed, records walked,
// drops counted); fake_cupti_records.cpp makes the records. It is not CUPTI, and nothing it says comes from a GPU.
//
// FAKE_CUPTI_VERSION is the version it reports; FAKE_CUPTI_FAIL=cuptiSubscribe=39,cuptiActivityEnable=35 makes calls
// fail with those codes.
#include "fake_cupti.h"

#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <cupti_version.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fake_cupti_emit.h"

namespace {

std::int64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The processor's own counter, or nanoseconds where it has none to be read so.
std::uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<std::uint64_t>(clock_ns(CLOCK_MONOTONIC));
#endif
}

CUptiResult fails(const char* function) {
  static const char* const plan = std::getenv("FAKE_CUPTI_FAIL");  // once: records are walked by the million
  if (plan == nullptr) return CUPTI_SUCCESS;
  const std::string wanted = std::string(function) + "=";
  const std::string text = std::string(",") + plan;
  const std::size_t at = text.find("," + wanted);
  return at == std::string::npos ? CUPTI_SUCCESS
                                 : static_cast<CUptiResult>(std::atoi(text.c_str() + at + 1 + wanted.size()));
}

#define FAKE_FAILS(function)                                                 \
  if (const CUptiResult failed = fails(function); failed != CUPTI_SUCCESS) { \
    return failed;                                                           \
  }

// One thread's buffer under way, as CUPTI's is of late.
struct Emitter {
  std::atomic<bool> emitting{false};
  std::uint8_t* buffer = nullptr;
  std::size_t bytes = 0;
  std::size_t used = 0;
  std::uint64_t epoch = 0;
};

constexpr std::uint32_t kKinds = 64;
std::atomic<std::size_t> record_bytes[kKinds];  // by kind; 0: this version has no such record
std::mutex mutex;                               // over emitters and enabled
std::deque<Emitter> emitters;
std::set<int> enabled;
std::set<std::pair<int, std::uint32_t>> enabled_calls;
bool subscribed = false;
CUpti_BuffersCallbackRequestFunc registered_request = nullptr;
CUpti_BuffersCallbackCompleteFunc registered_complete = nullptr;
std::atomic<CUpti_BuffersCallbackRequestFunc> request{nullptr};
std::atomic<CUpti_BuffersCallbackCompleteFunc> complete{nullptr};
std::atomic<CUpti_TimestampCallbackFunc> timestamp{nullptr};
std::atomic<std::uint64_t> flush_epoch{0};
std::atomic<std::size_t> dropped{0};
std::atomic<bool> wait_for_room{false};  // CUPTI drops; a measure of the reader's speed waits
thread_local Emitter* mine = nullptr;
std::atomic<bool> any_replayed{false};
std::map<const std::uint8_t*, std::vector<std::uint32_t>> replayed;  // offsets of the records of a buffer
std::map<std::pair<bool, std::uint32_t>, const char*> named_calls;

void hand_over(Emitter* e) {
  if (e->buffer != nullptr && complete != nullptr) complete.load()(nullptr, 0, e->buffer, e->bytes, e->used);
  e->buffer = nullptr;
  e->used = e->bytes = 0;
}

Emitter* begin() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (mine == nullptr) mine = &emitters.emplace_back();
  mine->emitting = true;
  return mine;
}

void* room(Emitter* e, std::size_t bytes) {
  const std::uint64_t epoch = flush_epoch.load(std::memory_order_relaxed);
  if (e->buffer != nullptr && (e->used + bytes > e->bytes || e->epoch != epoch)) hand_over(e);
  e->epoch = epoch;
  if (e->buffer == nullptr) {
    std::size_t most = 0;
    do {
      if (request != nullptr) request.load()(&e->buffer, &e->bytes, &most);
      if (e->buffer == nullptr && wait_for_room) std::this_thread::yield();
    } while (e->buffer == nullptr && wait_for_room);
    if (e->buffer == nullptr) {
      ++dropped;
      return nullptr;
    }
    e->used = 0;
    if (any_replayed) {
      const std::lock_guard<std::mutex> lock(mutex);
      replayed.erase(e->buffer);
    }
  }
  void* at = e->buffer + e->used;
  e->used += bytes;
  return at;
}

}  // namespace

bool is_enabled(int kind) {
  const std::lock_guard<std::mutex> lock(mutex);
  return enabled.count(kind) != 0;
}

bool is_call_enabled(int kind, std::uint32_t id) {
  const std::lock_guard<std::mutex> lock(mutex);
  return enabled.count(kind) != 0 || enabled_calls.count({kind, id}) != 0;
}

const char* keep(const char* name) {
  static auto& names_mutex = *new std::mutex;
  static auto& names = *new std::set<std::string>;
  const std::lock_guard<std::mutex> lock(names_mutex);
  return names.insert(name).first->c_str();
}

void emit(std::uint32_t kind, const void* record, std::size_t known_bytes) {
  const std::size_t bytes = record_bytes[kind];
  if (bytes == 0) return;
  Emitter* e = begin();
  if (void* at = room(e, bytes)) {
    std::memset(at, 0xAB, bytes);
    std::memcpy(at, record, std::min(bytes, known_bytes));
  }
  e->emitting = false;
}

extern "C" {

CUptiResult cuptiGetVersion(std::uint32_t* version) {
  FAKE_FAILS("cuptiGetVersion");
  const char* wanted = std::getenv("FAKE_CUPTI_VERSION");
  *version = wanted == nullptr ? CUPTI_API_VERSION : static_cast<std::uint32_t>(std::atoi(wanted));
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  static const std::map<int, const char*> kTexts = {
      {1, "CUPTI_ERROR_INVALID_PARAMETER"},
      {15, "CUPTI_ERROR_NOT_INITIALIZED"},
      {21, "CUPTI_ERROR_INVALID_KIND"},
      {35, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"},
      {39, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"},
  };
  FAKE_FAILS("cuptiGetResultString");
  const auto found = kTexts.find(result);
  *text = found == kTexts.end() ? "CUPTI_ERROR_UNKNOWN" : found->second;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc, void*) {
  FAKE_FAILS("cuptiSubscribe");
  const std::lock_guard<std::mutex> lock(mutex);
  if (subscribed) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  subscribed = true;
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&subscribed);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  FAKE_FAILS("cuptiUnsubscribe");
  const std::lock_guard<std::mutex> lock(mutex);
  subscribed = false;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(std::uint64_t* now) {
  FAKE_FAILS("cuptiGetTimestamp");
  *now = fake_cupti_now();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, std::uint32_t id, const char** name) {
  FAKE_FAILS("cuptiGetCallbackName");
  static const char* const kRuntime[] = {nullptr,
                                         "cudaGetDevice_v3020",
                                         "cudaLaunchKernel_v7000",
                                         "cudaMemcpyAsync_v3020",
                                         "cudaStreamSynchronize_v3020",
                                         "cudaMalloc_v3020",
                                         "cudaGraphLaunch_v10000"};
  static const char* const kDriver[] = {nullptr, "cuCtxGetCurrent", "cuLaunchKernel", "cuMemcpyHtoD_v2"};
  const bool driver = domain == CUPTI_CB_DOMAIN_DRIVER_API;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto replaying = named_calls.find({driver, id});
    if (replaying != named_calls.end()) {
      *name = replaying->second;
      return CUPTI_SUCCESS;
    }
  }
  if (id == 0 || id >= (driver ? std::size(kDriver) : std::size(kRuntime))) return CUPTI_ERROR_INVALID_PARAMETER;
  *name = driver ? kDriver[id] : kRuntime[id];
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed) {
  FAKE_FAILS("cuptiActivityRegisterCallbacks");
  request = registered_request = requested;
  complete = registered_complete = completed;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  FAKE_FAILS("cuptiActivityEnable");
  if (kind < kKinds && record_bytes[kind] == 0) return CUPTI_ERROR_INVALID_KIND;
  const std::lock_guard<std::mutex> lock(mutex);
  enabled.insert(kind);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  FAKE_FAILS("cuptiActivityDisable");
  const std::lock_guard<std::mutex> lock(mutex);
  enabled.erase(kind);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  FAKE_FAILS("cuptiActivityFlushAll");
  const std::lock_guard<std::mutex> lock(mutex);
  ++flush_epoch;  // the emitting threads hand over by themselves
  for (Emitter& e : emitters) {
    if (!e.emitting) hand_over(&e);
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid_bytes, CUpti_Activity** record) {
  FAKE_FAILS("cuptiActivityGetNextRecord");
  if (any_replayed) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = replayed.find(buffer);
    if (found != replayed.end()) {
      const auto& offsets = found->second;
      const auto at = *record == nullptr ? offsets.begin()
                                         : std::upper_bound(offsets.begin(), offsets.end(),
                                                            reinterpret_cast<std::uint8_t*>(*record) - buffer);
      if (at == offsets.end()) return CUPTI_ERROR_MAX_LIMIT_REACHED;
      *record = reinterpret_cast<CUpti_Activity*>(buffer + *at);
      return CUPTI_SUCCESS;
    }
  }
  std::uint8_t* next = buffer;
  if (*record != nullptr) next = reinterpret_cast<std::uint8_t*>(*record) + record_bytes[(*record)->kind];
  if (next >= buffer + valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  auto* found = reinterpret_cast<CUpti_Activity*>(next);
  if (found->kind >= kKinds || record_bytes[found->kind] == 0) return CUPTI_ERROR_INVALID_KIND;
  *record = found;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* count) {
  FAKE_FAILS("cuptiActivityGetNumDroppedRecords");
  *count = dropped.exchange(0);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType) {
  FAKE_FAILS("cuptiSetThreadIdType");
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function) {
  FAKE_FAILS("cuptiActivityRegisterTimestampCallback");
  timestamp = function;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableRuntimeApi(std::uint32_t id, std::uint8_t enable) {
  FAKE_FAILS("cuptiActivityEnableRuntimeApi");
  const std::lock_guard<std::mutex> lock(mutex);
  if (enable != 0) enabled_calls.insert({CUPTI_ACTIVITY_KIND_RUNTIME, id});
  if (enable == 0) enabled_calls.erase({CUPTI_ACTIVITY_KIND_RUNTIME, id});
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableDriverApi(std::uint32_t id, std::uint8_t enable) {
  FAKE_FAILS("cuptiActivityEnableDriverApi");
  const std::lock_guard<std::mutex> lock(mutex);
  if (enable != 0) enabled_calls.insert({CUPTI_ACTIVITY_KIND_DRIVER, id});
  if (enable == 0) enabled_calls.erase({CUPTI_ACTIVITY_KIND_DRIVER, id});
  return CUPTI_SUCCESS;
}

// What tests call.

void fake_wait_for_room(int wait) { wait_for_room = wait != 0; }

std::uint64_t fake_ticks() { return ticks(); }

// A client that does nothing with its one buffer, to hold the cost of one that does against; or again the one that
// registered. Not while a thread emits.
void fake_use_idle_client(int idle) {
  const std::lock_guard<std::mutex> lock(mutex);
  for (Emitter& e : emitters) hand_over(&e);
  if (idle == 0) {
    request = registered_request;
    complete = registered_complete;
    return;
  }
  request = [](std::uint8_t** buffer, std::size_t* bytes, std::size_t*) {
    constexpr std::size_t kBytes = std::size_t{4} << 20;
    static std::uint8_t* const data = static_cast<std::uint8_t*>(std::memset(std::malloc(kBytes), 1, kBytes));
    *buffer = data;
    *bytes = kBytes;
  };
  complete = [](CUcontext, std::uint32_t, std::uint8_t*, std::size_t, std::size_t) {};
}

void fake_set_record_bytes(std::uint32_t kind, std::size_t bytes) { record_bytes[kind] = bytes; }

// CUPTI's clock: the system's where no callback was given.
std::uint64_t fake_cupti_now() {
  return timestamp != nullptr ? timestamp.load()() : static_cast<std::uint64_t>(clock_ns(CLOCK_REALTIME));
}

int fake_is_collecting(int kind) {
  if (is_enabled(kind)) return 1;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto& call : enabled_calls) {
    if (call.first == kind) return 1;
  }
  return 0;
}

void fake_name_call(int is_driver, std::uint32_t id, const char* name) {
  const char* kept = keep(name);
  const std::lock_guard<std::mutex> lock(mutex);
  named_calls[{is_driver != 0, id}] = kept;
}

void fake_replay(const std::uint8_t* data, std::size_t bytes, const std::uint32_t* offsets, std::uint32_t records,
                 const std::uint64_t* addresses, const char* const* texts, std::uint32_t named) {
  std::uint8_t* buffer = nullptr;
  std::size_t room = 0;
  std::size_t most = 0;
  request.load()(&buffer, &room, &most);
  if (buffer == nullptr || room < bytes) std::abort();
  std::memcpy(buffer, data, bytes);
  std::map<const char*, const char*> text_at;
  for (std::uint32_t i = 0; i < named; ++i) text_at[reinterpret_cast<const char*>(addresses[i])] = keep(texts[i]);
  for (std::uint32_t i = 0; i < records; ++i) {
    auto* record = reinterpret_cast<CUpti_Activity*>(buffer + offsets[i]);
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
      auto* kernel = reinterpret_cast<CUpti_ActivityKernel5*>(record);
      kernel->name = text_at[kernel->name];
    } else if (record->kind == CUPTI_ACTIVITY_KIND_DEVICE) {
      auto* device = reinterpret_cast<CUpti_ActivityDevice2*>(record);
      device->name = text_at[device->name];
    }
  }
  {
    const std::lock_guard<std::mutex> lock(mutex);
    replayed[buffer].assign(offsets, offsets + records);
    any_replayed = true;
  }
  complete.load()(nullptr, 0, buffer, room, bytes);
}

void fake_emit_many(std::uint32_t threads, std::uint64_t per_thread, std::uint32_t names, std::uint32_t* cost_ticks) {
  std::vector<const char*> texts;
  for (std::uint32_t i = 0; i < names; ++i) {  // kernel_i(), mangled
    const std::string name = "kernel_" + std::to_string(i);
    texts.push_back(keep(("_Z" + std::to_string(name.size()) + name + "v").c_str()));
  }
  const std::size_t bytes = record_bytes[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL];
  const auto work = [=, &texts](std::uint32_t thread) {
    CUpti_ActivityKernel9 record{};
    record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record.streamId = 7 + thread;
    record.contextId = 1;
    record.gridX = 1024;
    record.gridY = record.gridZ = 1;
    record.blockX = 256;
    record.blockY = record.blockZ = 1;
    record.registersPerThread = 64;
    const auto start_ns = static_cast<std::uint64_t>(clock_ns(CLOCK_MONOTONIC));
    std::uint32_t* cost = cost_ticks == nullptr ? nullptr : cost_ticks + thread * per_thread;
    Emitter* e = begin();
    for (std::uint64_t i = 0; i < per_thread; ++i) {
      const std::uint64_t before = cost == nullptr ? 0 : ticks();
      record.start = start_ns + i * 5000;
      record.end = record.start + 1000 + i % 4000;
      record.correlationId = static_cast<std::uint32_t>(1 + thread * per_thread + i);
      record.name = texts[(i * 7) % names];
      if (void* at = room(e, bytes)) std::memcpy(at, &record, bytes < sizeof(record) ? bytes : sizeof(record));
      if (cost != nullptr) cost[i] = static_cast<std::uint32_t>(ticks() - before);
    }
    e->emitting = false;
  };
  std::vector<std::thread> workers;
  for (std::uint32_t t = 1; t < threads; ++t) workers.emplace_back(work, t);
  work(0);
  for (std::thread& worker : workers) worker.join();
}

}  // extern "C"
