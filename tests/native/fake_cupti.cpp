// A test double of libcupti: what may be subscribed and enabled; fake_cupti_buffers.cpp has the rules of buffers, and
// fake_cupti_records.cpp makes the records. It is not CUPTI, and nothing it says comes from a GPU.
//
// FAKE_CUPTI_VERSION is the version it reports; FAKE_CUPTI_FAIL=cuptiSubscribe=39,cuptiActivityEnable=35 makes calls
// fail with those codes. Of several copies, those whose paths contain FAKE_CUPTI_NEWER are of CUDA 13, and those whose
// paths contain FAKE_CUPTI_REFUSES do not know the driver. With FAKE_CUPTI_CLOCKS_NEED_CONTEXT clocks are refused where
// there is no context, as by CUPTI 13.0 on an H100.
#include "fake_cupti.h"

#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <cupti_version.h>
#include <dlfcn.h>

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

std::mutex mutex;  // over enabled
std::set<int> enabled;
std::atomic<bool> kernels_enabled{false};  // without the mutex
std::atomic<int> sessions{0};
std::set<std::pair<int, std::uint32_t>> enabled_calls;   // of kinds that are not enabled
std::set<std::pair<int, std::uint32_t>> disabled_calls;  // of kinds that are
std::set<int> ended_kinds;                               // that were enabled and are not
bool subscribed = false;
std::atomic<CUpti_TimestampCallbackFunc> timestamp{nullptr};
std::atomic<std::uint64_t> clock_changes{0};
std::map<std::pair<bool, std::uint32_t>, const char*> named_calls;

}  // namespace

bool is_enabled(int kind) {
  const std::lock_guard<std::mutex> lock(mutex);
  return enabled.count(kind) != 0;
}

// With FAKE_CUPTI_CLOCK_FAULT what CUPTI does to times of a device once a clock was registered again: they are off by
// 1e14 ns (pytorch/pytorch#192021).
std::uint64_t fake_time_error() {
  constexpr std::uint64_t kError = 100'000'000'000'000;
  static const bool faulty = std::getenv("FAKE_CUPTI_CLOCK_FAULT") != nullptr;
  return faulty && clock_changes > 1 ? kError : 0;
}

int count_sessions() { return sessions; }

bool any_enabled() {
  const std::lock_guard<std::mutex> lock(mutex);
  return !enabled.empty() || !enabled_calls.empty();
}

bool is_call_enabled(int kind, std::uint32_t id) {
  const std::lock_guard<std::mutex> lock(mutex);
  return enabled.count(kind) != 0 ? disabled_calls.count({kind, id}) == 0 : enabled_calls.count({kind, id}) != 0;
}

namespace {

bool has_context() {
  using State = CUptiResult(int, unsigned int*, int*);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  auto* state = driver == nullptr ? nullptr : reinterpret_cast<State*>(dlsym(driver, "cuDevicePrimaryCtxGetState"));
  unsigned int flags = 0;
  int active = 0;
  return state != nullptr && state(0, &flags, &active) == 0 && active != 0;
}

// A kind that is enabled or disabled forgets what was chosen of its calls. With the mutex.
void forget_calls(int kind) {
  for (auto* calls : {&enabled_calls, &disabled_calls}) {
    for (auto call = calls->begin(); call != calls->end();) call = call->first == kind ? calls->erase(call) : ++call;
  }
}

// As CUPTI 13.0 does: a call of a kind that is off is recorded only if it was chosen before there was a context, and
// the kind was never on. A choice without effect succeeds.
void choose_call(int kind, std::uint32_t id, bool enable) {
  const bool is_late = has_context();
  const std::lock_guard<std::mutex> lock(mutex);
  if (enabled.count(kind) != 0) {
    if (enable) disabled_calls.erase({kind, id});
    if (!enable) disabled_calls.insert({kind, id});
  } else if (!enable) {
    enabled_calls.erase({kind, id});
  } else if (ended_kinds.count(kind) == 0 && !is_late) {
    enabled_calls.insert({kind, id});
  }
}

}  // namespace

const char* keep(const char* name) {
  static auto& names_mutex = *new std::mutex;
  static auto& names = *new std::set<std::string>;
  const std::lock_guard<std::mutex> lock(names_mutex);
  return names.insert(name).first->c_str();
}

namespace {

// Whether the path of this copy contains the text of the variable.
bool is_named_by(const char* variable) {
  const char* text = std::getenv(variable);
  Dl_info info{};
  if (text == nullptr || dladdr(reinterpret_cast<void*>(&cuptiGetVersion), &info) == 0) return false;
  return std::strstr(info.dli_fname, text) != nullptr;
}

}  // namespace

std::uint32_t fake_version() {
  static std::atomic<std::uint32_t> known{0};  // once: every record asks
  std::uint32_t version = known.load(std::memory_order_relaxed);
  if (version != 0) return version;
  const char* wanted = std::getenv("FAKE_CUPTI_VERSION");
  version = wanted == nullptr ? CUPTI_API_VERSION : static_cast<std::uint32_t>(std::atoi(wanted));
  if (is_named_by("FAKE_CUPTI_NEWER")) version = 130001;
  known = version;
  return version;
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

extern "C" {

CUptiResult cuptiGetVersion(std::uint32_t* version) {
  FAKE_FAILS("cuptiGetVersion");
  *version = fake_version();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  static const std::map<int, const char*> kTexts = {
      {1, "CUPTI_ERROR_INVALID_PARAMETER"},        {14, "CUPTI_ERROR_NOT_COMPATIBLE"},
      {15, "CUPTI_ERROR_NOT_INITIALIZED"},         {21, "CUPTI_ERROR_INVALID_KIND"},
      {35, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"}, {39, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"},
  };
  FAKE_FAILS("cuptiGetResultString");
  const auto found = kTexts.find(result);
  *text = found == kTexts.end() ? "CUPTI_ERROR_UNKNOWN" : found->second;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc function, void* data) {
  FAKE_FAILS("cuptiSubscribe");
  if (is_named_by("FAKE_CUPTI_REFUSES")) return CUPTI_ERROR_NOT_INITIALIZED;
  const std::lock_guard<std::mutex> lock(mutex);
  if (subscribed) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  subscribed = true;
  set_subscriber(function, data);
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&subscribed);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  FAKE_FAILS("cuptiUnsubscribe");
  const std::lock_guard<std::mutex> lock(mutex);
  subscribed = false;
  set_subscriber(nullptr, nullptr);
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
  static const char* const kDriver[] = {nullptr, "cuCtxGetCurrent", "cuLaunchKernel", "cuMemcpyHtoD_v2",
                                        "cuDriverGetVersion"};
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

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  FAKE_FAILS("cuptiActivityEnable");
  if (kind < kFakeKinds && !has_record(kind)) return CUPTI_ERROR_INVALID_KIND;
  static const bool refuses_clocks = std::getenv("FAKE_CUPTI_CLOCKS_NEED_CONTEXT") != nullptr;
  if (refuses_clocks && kind == CUPTI_ACTIVITY_KIND_ENVIRONMENT && !has_context()) return CUPTI_ERROR_NOT_COMPATIBLE;
  const std::lock_guard<std::mutex> lock(mutex);
  if (enabled.empty() && enabled_calls.empty()) ++sessions;
  enabled.insert(kind);
  forget_calls(kind);
  if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) kernels_enabled = true;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  FAKE_FAILS("cuptiActivityDisable");
  const std::lock_guard<std::mutex> lock(mutex);
  if (enabled.erase(kind) != 0) ended_kinds.insert(kind);
  forget_calls(kind);
  if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) kernels_enabled = false;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(std::uint32_t flag) {
  FAKE_FAILS("cuptiActivityFlushAll");
  flush_buffers((flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType) {
  FAKE_FAILS("cuptiSetThreadIdType");
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function) {
  FAKE_FAILS("cuptiActivityRegisterTimestampCallback");
  timestamp = function;
  ++clock_changes;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableRuntimeApi(std::uint32_t id, std::uint8_t enable) {
  FAKE_FAILS("cuptiActivityEnableRuntimeApi");
  choose_call(CUPTI_ACTIVITY_KIND_RUNTIME, id, enable != 0);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableDriverApi(std::uint32_t id, std::uint8_t enable) {
  FAKE_FAILS("cuptiActivityEnableDriverApi");
  choose_call(CUPTI_ACTIVITY_KIND_DRIVER, id, enable != 0);
  return CUPTI_SUCCESS;
}

// What tests call.

std::uint64_t fake_ticks() { return ticks(); }

std::uint64_t fake_clock_changes() { return clock_changes; }

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

void fake_emit_many(std::uint32_t threads, std::uint64_t per_thread, std::uint32_t names, std::uint32_t* cost_ticks) {
  std::vector<const char*> texts;
  for (std::uint32_t i = 0; i < names; ++i) {  // kernel_i(), mangled
    const std::string name = "kernel_" + std::to_string(i);
    texts.push_back(keep(("_Z" + std::to_string(name.size()) + name + "v").c_str()));
  }
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
    for (std::uint64_t i = 0; i < per_thread && kernels_enabled.load(std::memory_order_relaxed); ++i) {
      const std::uint64_t before = cost == nullptr ? 0 : ticks();
      record.start = start_ns + i * 5000;
      record.end = record.start + 1000 + i % 4000;
      record.correlationId = static_cast<std::uint32_t>(1 + thread * per_thread + i);
      record.name = texts[(i * 7) % names];
      emit_kernel_fast(&record, sizeof(record));
      if (cost != nullptr) cost[i] = static_cast<std::uint32_t>(ticks() - before);
    }
  };
  std::vector<std::thread> workers;
  for (std::uint32_t t = 1; t < threads; ++t) workers.emplace_back(work, t);
  work(0);
  for (std::thread& worker : workers) worker.join();
}

}  // extern "C"
