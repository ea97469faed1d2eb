// What CUPTI tells of the card's work and of the calls: the records go through the double of libcupti, whose rules of
// buffers hold here as well. A record of work is given when the work is done.
#include <cupti_activity.h>
#include <cupti_version.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>

#include "../../native/fake_cupti.h"
#include "../../native/fake_cupti_emit.h"
#include "calls.inc"
#include "card.h"

namespace card {

namespace {

thread_local std::uint32_t current_call = 0;
std::atomic<std::uint32_t> last_correlation_id{0};

struct Pending {
  Ns end;
  std::function<void()> emit;
};

std::deque<Pending>& pending() {
  static auto& made = *new std::deque<Pending>;
  return made;
}

// CUPTI's clock beside the card's, at two moments: the client's callback may count something else than nanoseconds.
struct Reading {
  Ns card;
  std::uint64_t cupti;
};

Reading read_clocks() {
  Reading best{};
  Ns width = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Ns before = now();
    const std::uint64_t read = fake_cupti_now();
    const Ns after = now();
    if (attempt > 0 && after - before >= width) continue;
    width = after - before;
    best = {before + width / 2, read};
  }
  return best;
}

Reading first{}, latest{};
std::uint64_t clock_changes = 0;  // of `first`

// What the client's clock counts in a nanosecond; under a virtual time every clock counts nanoseconds.
double client_rate() {
  constexpr Ns kLeastSpan = 2'000'000;
  if (is_virtual()) return 1;
  while (latest.card - first.card < kLeastSpan) latest = read_clocks();
  return static_cast<double>(latest.cupti - first.cupti) / static_cast<double>(latest.card - first.card);
}

std::uint64_t in_cupti_time(Ns at) {
  constexpr Ns kOld = 50'000'000;
  const std::uint64_t changes = fake_clock_changes();
  if (first.card == 0 || changes != clock_changes) {
    clock_changes = changes;
    first = latest = read_clocks();
  }
  if (now() - latest.card > kOld) latest = read_clocks();
  const double rate = client_rate();
  return latest.cupti +
         static_cast<std::uint64_t>(static_cast<std::int64_t>(rate * static_cast<double>(at - latest.card)));
}

void give(bool all) {
  LOCK();
  auto& waiting = pending();
  const Ns moment = now();
  const auto is_due = [=](const Pending& one) { return all || one.end <= moment; };
  for (Pending& one : waiting) {
    if (is_due(one)) one.emit();
  }
  waiting.erase(std::remove_if(waiting.begin(), waiting.end(), is_due), waiting.end());
}

// As CUPTI does, which looks after its records now and then; a flush looks as well.
void give_sometimes() {
  constexpr Ns kPeriod = 5'000'000;
  static std::atomic<Ns> next{0};
  if (now() < next) return;
  next = now() + kPeriod;
  give(false);
}

void give_later(Ns end, std::function<void()> emit_record) {
  LOCK();
  pending().push_back({end, std::move(emit_record)});
}

template <typename Record>
Record moved(CUpti_ActivityKind kind, const Stream& stream, const Work& work, Span span, std::uint32_t graph,
             std::uint64_t node) {
  Record record{};
  record.kind = kind;
  record.bytes = work.copied;
  record.start = in_cupti_time(span.start) + fake_time_error();
  record.end = in_cupti_time(span.end) + fake_time_error();
  record.deviceId = static_cast<std::uint32_t>(stream.device->index);
  record.contextId = static_cast<std::uint32_t>(stream.device->index) + 1;
  record.streamId = stream.id;
  record.graphId = graph;
  record.graphNodeId = node;
  return record;
}

void emit_copy(const Stream& stream, const Work& work, Span span, std::uint32_t correlation, std::uint32_t graph,
               std::uint64_t node) {
  auto record = moved<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY, stream, work, span, graph, node);
  const auto device = static_cast<std::uint8_t>(CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
  const auto host = static_cast<std::uint8_t>(work.pageable ? CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE
                                                            : CUPTI_ACTIVITY_MEMORY_KIND_PINNED);
  record.copyKind = static_cast<std::uint8_t>(work.copy_kind);
  record.srcKind = work.copy_kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD ? host : device;
  record.dstKind = work.copy_kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? host : device;
  record.correlationId = correlation;
  emit(record);
}

void emit_kernel(const Stream& stream, const Work& work, Span span, std::uint32_t correlation, std::uint32_t graph,
                 std::uint64_t node) {
  CUpti_ActivityKernel10 record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.name = keep(work.name);
  record.start = in_cupti_time(span.start) + fake_time_error();
  record.end = in_cupti_time(span.end) + fake_time_error();
  record.completed = record.end;
  record.deviceId = static_cast<std::uint32_t>(stream.device->index);
  record.contextId = static_cast<std::uint32_t>(stream.device->index) + 1;
  record.streamId = stream.id;
  record.correlationId = correlation;
  record.gridId = correlation;
  record.gridX = static_cast<std::int32_t>(work.grid.x);
  record.gridY = static_cast<std::int32_t>(work.grid.y);
  record.gridZ = static_cast<std::int32_t>(work.grid.z);
  record.blockX = static_cast<std::int32_t>(work.block.x);
  record.blockY = static_cast<std::int32_t>(work.block.y);
  record.blockZ = static_cast<std::int32_t>(work.block.z);
  record.registersPerThread = static_cast<std::uint16_t>(work.registers);
  record.staticSharedMemory = static_cast<std::int32_t>(work.static_shared);
  record.dynamicSharedMemory = static_cast<std::int32_t>(work.dynamic_shared);
  record.graphId = graph;
  record.graphNodeId = node;
  emit(record);
}

std::uint32_t thread_id() {
  thread_local const auto id = static_cast<std::uint32_t>(syscall(SYS_gettid));
  return id;
}

// CUDA 13.0's records; the double has them by size.
void set_record_sizes() {
  fake_set_record_bytes(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, sizeof(CUpti_ActivityKernel10));
  fake_set_record_bytes(CUPTI_ACTIVITY_KIND_MEMCPY, sizeof(CUpti_ActivityMemcpy6));
  fake_set_record_bytes(CUPTI_ACTIVITY_KIND_MEMCPY2, sizeof(CUpti_ActivityMemcpyPtoP4));
  fake_set_record_bytes(CUPTI_ACTIVITY_KIND_MEMSET, sizeof(CUpti_ActivityMemset4));
  fake_set_record_bytes(CUPTI_ACTIVITY_KIND_RUNTIME, sizeof(CUpti_ActivityAPI));
  fake_set_record_bytes(CUPTI_ACTIVITY_KIND_DRIVER, sizeof(CUpti_ActivityAPI));
  fake_set_record_bytes(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, sizeof(CUpti_ActivityExternalCorrelation));
  fake_set_record_bytes(CUPTI_ACTIVITY_KIND_OVERHEAD, sizeof(CUpti_ActivityOverhead3));
  fake_set_record_bytes(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, sizeof(CUpti_ActivitySynchronization2));
  fake_set_record_bytes(CUPTI_ACTIVITY_KIND_MEMORY2, sizeof(CUpti_ActivityMemory4));
  fake_set_record_bytes(CUPTI_ACTIVITY_KIND_DEVICE, sizeof(CUpti_ActivityDevice5));
  fake_set_record_bytes(CUPTI_ACTIVITY_KIND_CONTEXT, sizeof(CUpti_ActivityContext3));
  fake_set_record_bytes(CUPTI_ACTIVITY_KIND_ENVIRONMENT, sizeof(CUpti_ActivityEnvironment));
  fake_set_record_bytes(CUPTI_ACTIVITY_KIND_CUDA_EVENT, sizeof(CUpti_ActivityCudaEvent2));
}

// Runs when the library is loaded.
const bool prepared = [] {
  set_record_sizes();
  for (const NamedCall& call : kRuntimeCalls) fake_name_call(0, call.id, call.name);
  for (const NamedCall& call : kDriverCalls) fake_name_call(1, call.id, call.name);
  set_before_flush(give);
  return true;
}();

}  // namespace

Call::Call(bool is_driver, std::uint32_t id, double host_ns) : is_driver_(is_driver), id_(id), outer_(current_call) {
  current_call = ++last_correlation_id;
  const int kind = is_driver ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME;
  if (is_call_enabled(kind, id)) start_ = fake_cupti_now();
  if (any_enabled()) emit_external_correlation(current_call);
  spend((host_ns > 0 ? host_ns : config().costs.call_ns) * vary_call());
}

Call::~Call() {
  const CUpti_ActivityKind kind = is_driver_ ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME;
  if (start_ != 0) {
    CUpti_ActivityAPI record{};
    record.kind = kind;
    record.cbid = id_;
    record.start = start_;
    record.end = fake_cupti_now();
    record.processId = static_cast<std::uint32_t>(getpid());
    record.threadId = thread_id();
    record.correlationId = current_call;
    record.returnValue = returned_;
    emit(record);
  }
  current_call = outer_;
  give_sometimes();
}

std::uint32_t Call::correlation_id() { return current_call; }

void record_work(const Stream& stream, const Work& work, Span span, std::uint32_t graph, std::uint64_t node) {
  const std::uint32_t correlation = Call::correlation_id();
  if (work.kind == Work::kKernel) {
    fake_range_kernel();
    if (!is_enabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) return;
    give_later(span.end, [=, &stream] { emit_kernel(stream, work, span, correlation, graph, node); });
  } else if (work.kind == Work::kCopy) {
    if (!is_enabled(CUPTI_ACTIVITY_KIND_MEMCPY)) return;
    give_later(span.end, [=, &stream] { emit_copy(stream, work, span, correlation, graph, node); });
  } else if (is_enabled(CUPTI_ACTIVITY_KIND_MEMSET)) {
    give_later(span.end, [=, &stream] {
      auto record = moved<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET, stream, work, span, graph, node);
      record.value = work.value;
      record.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
      record.correlationId = correlation;
      emit(record);
    });
  }
}

void record_synchronization(const Stream* stream, Ns start) {
  if (!is_enabled(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION)) return;
  CUpti_ActivitySynchronization2 record{};
  record.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  record.type = stream == nullptr ? CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE
                                  : CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE;
  record.start = in_cupti_time(start);
  record.end = in_cupti_time(now());
  record.contextId = static_cast<std::uint32_t>(current_device()) + 1;
  record.streamId = stream == nullptr ? CUPTI_SYNCHRONIZATION_INVALID_VALUE : stream->id;
  record.correlationId = Call::correlation_id();
  emit(record);
}

void record_allocation(const void* address, std::size_t bytes, Memory kind, int device, bool is_release) {
  if (!is_enabled(CUPTI_ACTIVITY_KIND_MEMORY2)) return;
  CUpti_ActivityMemory4 record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
  record.memoryOperationType =
      is_release ? CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE : CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  record.memoryKind = kind == Memory::kPinned ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED : CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  record.address = reinterpret_cast<std::uint64_t>(address);
  record.bytes = bytes;
  record.timestamp = fake_cupti_now();
  record.processId = static_cast<std::uint32_t>(getpid());
  record.deviceId = static_cast<std::uint32_t>(device);
  record.contextId = record.deviceId + 1;
  record.streamId = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  record.correlationId = Call::correlation_id();
  emit(record);
}

}  // namespace card
