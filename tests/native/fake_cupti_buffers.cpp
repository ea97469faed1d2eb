// The buffers of the test double of libcupti, by the rules that NVIDIA's headers and release notes give:
//
// - A buffer serves all threads, or each thread has one, as the attribute says; CUDA 13.0 made the latter the default.
// - CUPTI zeroes a buffer in the thread that needs it, unless the client said by attribute that its buffers are zeroed.
// - Before API version 27 CUPTI crashes the program where it gets no buffer; since then it drops records and counts
// them.
// - A flush returns buffers whose records are all complete, full or not; a forced flush returns all. A full buffer is
//   returned when its last record is complete.
// - With FAKE_CUPTI_KEEPS=n the first n forced flushes return nothing, as if a thread of CUPTI held the buffers.
// - With FAKE_CUPTI_TELLS_FLUSHES a forced flush that returned records leaves one of itself, in a new buffer, as CUPTI
//   13.0 does on an H100.
// - With FAKE_CUPTI_LEAVES a forced flush leaves a new buffer with: `clocks`, a sample of them if they are enabled, as
//   CUPTI 13.0's own thread does on an H100 each 50 ms; `sample`, one that was under way when they were disabled;
//   `nothing`; or `kernel`, one that another thread launched.
// - There is one pair of callbacks in a process: whoever registered last gets the buffers, also those under way.
#include <cupti_activity.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fake_cupti.h"
#include "fake_cupti_emit.h"

namespace {

struct Buffer {
  std::uint8_t* data = nullptr;
  std::size_t bytes = 0;
  std::size_t used = 0;
  std::vector<CUpti_ActivityKernel9*> unfinished;
};

// The buffer that one thread fills, or all threads.
class Emitter {
 public:
  // Threads that emit go behind a flush, which would otherwise find it busy for long.
  void lock() noexcept {
    while (flushes_.load(std::memory_order_relaxed) != 0 || busy_.test_and_set(std::memory_order_acquire))
      std::this_thread::yield();
  }
  void lock_first() noexcept {
    ++flushes_;
    while (busy_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
    --flushes_;
  }
  void unlock() noexcept { busy_.clear(std::memory_order_release); }
  Buffer buffer;

 private:
  std::atomic<int> flushes_{0};
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

constexpr std::uint32_t kFirstThatTakesNull = 27;
constexpr std::uint32_t kFirstWithThreadAttribute = 26;  // the oldest header seen that has it
constexpr std::uint32_t kFirstOfThreads = 130000;        // CUDA 13.0

std::atomic<std::size_t> record_bytes[kFakeKinds];  // by kind; 0: this version has no such record
std::mutex emitters_mutex;                          // over emitters and full; taken before an emitter's
std::mutex replay_mutex;                            // over replayed
Emitter common;
std::deque<Emitter> emitters;
std::vector<Buffer> full;  // with records that are not finished
thread_local Emitter* mine = nullptr;
std::atomic<bool> zeroed_by_client{false};
std::atomic<int> per_thread{-1};  // -1: the version's default
std::atomic<std::uint64_t> zeroed{0};
std::atomic<std::uint64_t> dirty{0};
std::atomic<std::uint64_t> flushes{0};
CUpti_BuffersCallbackRequestFunc registered_request = nullptr;
CUpti_BuffersCallbackCompleteFunc registered_complete = nullptr;
std::atomic<CUpti_BuffersCallbackRequestFunc> request{nullptr};
std::atomic<CUpti_BuffersCallbackCompleteFunc> complete{nullptr};
std::atomic<std::size_t> dropped{0};
std::atomic<bool> wait_for_room{false};  // CUPTI drops; a measure of the reader's speed waits
std::atomic<bool> reader_held{false};
std::atomic<void (*)(bool)> before_flush{nullptr};
std::atomic<bool> any_replayed{false};
std::map<const std::uint8_t*, std::vector<std::uint32_t>> replayed;  // offsets of the records of a buffer

void hand_over(Buffer* buffer) {
  const Buffer done = std::exchange(*buffer, Buffer{});
  if (done.data != nullptr && complete != nullptr) complete.load()(nullptr, 0, done.data, done.bytes, done.used);
}

// A buffer that is to be zeroed is looked at in places only: the whole would cost more than the records.
bool is_zeroed(const std::uint8_t* data, std::size_t bytes) {
  constexpr std::size_t kStride = 4096;
  constexpr std::size_t kStart = 256;
  for (std::size_t at = 0; at < bytes; at += at < kStart ? 1 : kStride) {
    if (data[at] != 0) return false;
  }
  return true;
}

// Null if the client has no buffer.
bool get_buffer(Buffer* buffer) {
  std::size_t most = 0;
  if (request != nullptr) request.load()(&buffer->data, &buffer->bytes, &most);
  if (buffer->data == nullptr) return false;
  buffer->used = 0;
  if (!zeroed_by_client) {
    std::memset(buffer->data, 0, buffer->bytes);
    ++zeroed;
  } else if (!is_zeroed(buffer->data, buffer->bytes)) {
    ++dirty;
  }
  if (any_replayed) {
    const std::lock_guard<std::mutex> lock(replay_mutex);
    replayed.erase(buffer->data);
  }
  return true;
}

bool has_buffer_per_thread() { return per_thread < 0 ? fake_version() >= kFirstOfThreads : per_thread != 0; }

Emitter& emitter_of_this_thread() {
  if (!has_buffer_per_thread()) return common;
  if (mine == nullptr) {
    const std::lock_guard<std::mutex> lock(emitters_mutex);
    mine = &emitters.emplace_back();
  }
  return *mine;
}

// Room for a record, with the emitter locked; null, and unlocked, if the record is dropped.
std::uint8_t* lock_room(Emitter* e, std::size_t bytes) {
  for (;;) {
    e->lock();
    Buffer& b = e->buffer;
    if (b.data != nullptr && b.used + bytes > b.bytes) {
      if (b.unfinished.empty()) {
        hand_over(&b);
      } else {
        Buffer kept = std::exchange(b, Buffer{});
        e->unlock();  // a flush takes the mutex first
        {
          const std::lock_guard<std::mutex> lock(emitters_mutex);
          full.push_back(std::move(kept));
        }
        continue;
      }
    }
    if (b.data != nullptr || get_buffer(&b)) {
      std::uint8_t* at = b.data + b.used;
      b.used += bytes;
      return at;
    }
    e->unlock();
    if (!wait_for_room) break;
    std::this_thread::yield();
  }
  if (fake_version() < kFirstThatTakesNull) std::abort();
  ++dropped;
  return nullptr;
}

template <typename Function>
void for_each_emitter(Function function) {
  const auto locked = [&function](Emitter& e) {
    e.lock_first();
    function(&e.buffer);
    e.unlock();
  };
  locked(common);
  for (Emitter& e : emitters) locked(e);
}

}  // namespace

void emit(std::uint32_t kind, const void* record, std::size_t known_bytes) {
  const std::size_t bytes = record_bytes[kind];
  if (bytes == 0) return;
  Emitter& e = emitter_of_this_thread();
  std::uint8_t* at = lock_room(&e, bytes);
  if (at == nullptr) return;
  std::memset(at, 0xAB, bytes);
  std::memcpy(at, record, std::min(bytes, known_bytes));
  if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    auto* kernel = reinterpret_cast<CUpti_ActivityKernel9*>(at);
    if (kernel->end == 0) e.buffer.unfinished.push_back(kernel);
  }
  e.unlock();
}

void emit_kernel_fast(const void* record, std::size_t known_bytes) {
  const std::size_t bytes = record_bytes[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL];
  Emitter& e = emitter_of_this_thread();
  std::uint8_t* at = lock_room(&e, bytes);
  if (at == nullptr) return;
  std::memcpy(at, record, std::min(bytes, known_bytes));
  e.unlock();
}

bool has_record(std::uint32_t kind) { return kind < kFakeKinds && record_bytes[kind] != 0; }

void set_before_flush(void (*function)(bool)) { before_flush = function; }

namespace {

void tell_flush() {
  static const bool tells = std::getenv("FAKE_CUPTI_TELLS_FLUSHES") != nullptr;
  if (!tells || !is_enabled(CUPTI_ACTIVITY_KIND_OVERHEAD)) return;
  CUpti_ActivityOverhead record{};
  record.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  record.overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH;
  record.start = fake_cupti_now();
  record.end = record.start + 1000;
  emit(record);
}

void ask_for_buffer() {
  Emitter& e = emitter_of_this_thread();
  e.lock();
  if (e.buffer.data == nullptr) get_buffer(&e.buffer);
  e.unlock();
}

void leave_buffer() {
  static const char* const leaves = std::getenv("FAKE_CUPTI_LEAVES");
  const std::string what = leaves == nullptr ? "" : leaves;
  if (what == "nothing") return ask_for_buffer();
  if (what == "sample" || (what == "clocks" && is_enabled(CUPTI_ACTIVITY_KIND_ENVIRONMENT))) {
    CUpti_ActivityEnvironment record{};
    record.kind = CUPTI_ACTIVITY_KIND_ENVIRONMENT;
    record.timestamp = fake_cupti_now();
    record.environmentKind = CUPTI_ACTIVITY_ENVIRONMENT_TEMPERATURE;
    record.data.temperature.gpuTemperature = 30;
    for (int i = 0; i < 2; ++i) emit(record);
  } else if (what == "kernel") {
    CUpti_ActivityKernel9 record{};
    record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record.name = "late";
    record.start = fake_cupti_now();
    record.end = record.start + 1000;
    emit(record);
  }
}

void return_buffers(bool forced) {
  const std::lock_guard<std::mutex> lock(emitters_mutex);
  if (forced) {
    for (Buffer& b : full) hand_over(&b);
    full.clear();
  }
  for_each_emitter([forced](Buffer* b) {
    if (forced || b->unfinished.empty()) hand_over(b);
  });
}

}  // namespace

void flush_buffers(bool forced) {
  static const char* const keeps = std::getenv("FAKE_CUPTI_KEEPS");
  static std::atomic<int> kept{keeps == nullptr ? 0 : std::atoi(keeps)};
  if (before_flush != nullptr) before_flush.load()(forced);
  if (forced && kept > 0) {
    --kept;
    return;
  }
  return_buffers(forced);
  flushes += forced ? 0 : 1;
  if (!forced) return;
  tell_flush();
  leave_buffer();
}

extern "C" {

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed) {
  FAKE_FAILS("cuptiActivityRegisterCallbacks");
  request = registered_request = requested;
  complete = registered_complete = completed;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, std::size_t* bytes, void* value) {
  FAKE_FAILS("cuptiActivitySetAttribute");
  if (bytes == nullptr || value == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (attribute == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER) {
    zeroed_by_client = *static_cast<std::uint8_t*>(value) != 0;
    return CUPTI_SUCCESS;
  }
  if (attribute != CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER || fake_version() < kFirstWithThreadAttribute)
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (any_enabled()) std::abort();  // "undefined behavior"
  per_thread = *static_cast<std::uint8_t*>(value);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute attribute, std::size_t* bytes, void* value) {
  FAKE_FAILS("cuptiActivityGetAttribute");
  if (bytes == nullptr || value == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (*bytes < 1) return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  const bool is_zeroed_out = attribute == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER;
  if (!is_zeroed_out &&
      (attribute != CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER || fake_version() < kFirstWithThreadAttribute))
    return CUPTI_ERROR_INVALID_PARAMETER;
  *bytes = 1;
  *static_cast<std::uint8_t*>(value) = is_zeroed_out ? zeroed_by_client.load() : has_buffer_per_thread();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid_bytes, CUpti_Activity** record) {
  FAKE_FAILS("cuptiActivityGetNextRecord");
  while (reader_held) std::this_thread::yield();
  if (any_replayed) {
    const std::lock_guard<std::mutex> lock(replay_mutex);
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
  if (!has_record(found->kind)) return CUPTI_ERROR_INVALID_KIND;
  *record = found;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* count) {
  FAKE_FAILS("cuptiActivityGetNumDroppedRecords");
  *count = dropped.exchange(0);
  return CUPTI_SUCCESS;
}

// What tests call.

void fake_wait_for_room(int wait) { wait_for_room = wait != 0; }

void fake_hold_reader(int hold) { reader_held = hold != 0; }

std::uint64_t fake_zeroed_buffers() { return zeroed; }

std::uint64_t fake_flushes() { return flushes; }

std::uint64_t fake_dirty_buffers() { return dirty; }

void fake_set_record_bytes(std::uint32_t kind, std::size_t bytes) { record_bytes[kind] = bytes; }

void fake_finish_kernels(std::uint64_t end_ns) {
  const std::lock_guard<std::mutex> lock(emitters_mutex);
  const auto finish = [end_ns](Buffer* b) {
    for (CUpti_ActivityKernel9* kernel : b->unfinished) kernel->end = end_ns;
    b->unfinished.clear();
  };
  for_each_emitter(finish);
  for (Buffer& b : full) {
    finish(&b);
    hand_over(&b);
  }
  full.clear();
}

// Not while a thread emits.
void fake_use_idle_client(int buffers) {
  constexpr std::size_t kBytes = std::size_t{512} << 10;
  static std::vector<std::vector<std::uint8_t>> idle_buffers;
  static std::size_t used, next;
  flush_buffers(true);
  if (buffers == 0) {
    request = registered_request;
    complete = registered_complete;
    return;
  }
  used = static_cast<std::size_t>(buffers);
  if (idle_buffers.size() < used) idle_buffers.resize(used, std::vector<std::uint8_t>(kBytes));
  request = [](std::uint8_t** buffer, std::size_t* bytes, std::size_t*) {
    *buffer = idle_buffers[next++ % used].data();
    *bytes = kBytes;
  };
  complete = [](CUcontext, std::uint32_t, std::uint8_t*, std::size_t, std::size_t) {};
}

void fake_replay(const std::uint8_t* data, std::size_t bytes, const std::uint32_t* offsets, std::uint32_t records,
                 const std::uint64_t* addresses, const char* const* texts, std::uint32_t named) {
  std::map<const char*, const char*> text_at;
  for (std::uint32_t i = 0; i < named; ++i) text_at[reinterpret_cast<const char*>(addresses[i])] = keep(texts[i]);
  const auto end_of = [=](std::uint32_t i) { return i + 1 < records ? offsets[i + 1] : bytes; };
  for (std::uint32_t next = 0; next < records;) {
    Buffer b;
    if (!get_buffer(&b)) std::abort();
    const std::uint32_t from = offsets[next];
    std::vector<std::uint32_t> placed;
    // The recorded buffer may have been larger than the client's are today.
    for (; next < records && end_of(next) - from <= b.bytes; ++next) placed.push_back(offsets[next] - from);
    if (placed.empty()) std::abort();
    b.used = end_of(next - 1) - from;
    std::memcpy(b.data, data + from, b.used);
    for (const std::uint32_t offset : placed) {
      auto* record = reinterpret_cast<CUpti_Activity*>(b.data + offset);
      if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
        auto* kernel = reinterpret_cast<CUpti_ActivityKernel5*>(record);
        kernel->name = text_at[kernel->name];
      } else if (record->kind == CUPTI_ACTIVITY_KIND_DEVICE) {
        auto* device = reinterpret_cast<CUpti_ActivityDevice2*>(record);
        device->name = text_at[device->name];
      }
    }
    {
      const std::lock_guard<std::mutex> lock(replay_mutex);
      replayed[b.data] = std::move(placed);
      any_replayed = true;
    }
    hand_over(&b);
  }
}

}  // extern "C"
