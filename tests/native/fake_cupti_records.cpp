// The records that the test double of libcupti emits when a test tells it to: NVIDIA's own types, cut to the sizes that
// the test gives for a version of CUPTI.
#include <cupti_activity.h>

#include <cstdint>
#include <set>

#include "fake_cupti.h"
#include "fake_cupti_emit.h"

namespace {

constexpr std::uint32_t kGraphLaunch = 6;                // among the double's calls
constexpr std::uint32_t kFirstWithGraphsAgain = 130101;  // CUDA 13.1 update 1

// What the records of copies and sets have in common.
template <typename Record>
Record moved(CUpti_ActivityKind kind, std::uint64_t bytes, std::uint64_t start_ns, std::uint64_t end_ns,
             std::uint32_t device, std::uint32_t stream, std::uint32_t correlation_id, std::uint32_t graph) {
  Record record{};
  record.kind = kind;
  record.bytes = bytes;
  record.start = start_ns + fake_time_error();
  record.end = end_ns + fake_time_error();
  record.deviceId = device;
  record.streamId = stream;
  record.correlationId = correlation_id;
  record.graphId = graph;
  return record;
}

}  // namespace

extern "C" {

void fake_kernel(const FakeKernel* k) {
  if (!is_enabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) return;
  CUpti_ActivityKernel9 record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.name = keep(k->name);
  record.start = k->start_ns + fake_time_error();
  record.end = k->end_ns == 0 ? 0 : k->end_ns + fake_time_error();
  record.deviceId = k->device;
  record.contextId = k->context;
  record.streamId = k->stream;
  record.correlationId = k->correlation_id;
  record.gridX = k->grid[0];
  record.gridY = k->grid[1];
  record.gridZ = k->grid[2];
  record.blockX = k->block[0];
  record.blockY = k->block[1];
  record.blockZ = k->block[2];
  record.registersPerThread = static_cast<std::uint16_t>(k->registers_per_thread);
  record.staticSharedMemory = k->static_shared_bytes;
  record.dynamicSharedMemory = k->dynamic_shared_bytes;
  record.graphId = k->graph;
  record.graphNodeId = k->graph_node;
  emit(record);
}

void fake_copy(int peer, std::uint32_t copy_kind, std::uint64_t bytes, std::uint64_t start_ns, std::uint64_t end_ns,
               std::uint32_t device, std::uint32_t stream, std::uint32_t correlation_id, std::uint32_t graph,
               std::uint32_t source, std::uint32_t destination) {
  const CUpti_ActivityKind kind = peer != 0 ? CUPTI_ACTIVITY_KIND_MEMCPY2 : CUPTI_ACTIVITY_KIND_MEMCPY;
  if (!is_enabled(kind)) return;
  if (peer != 0) {
    auto record =
        moved<CUpti_ActivityMemcpyPtoP4>(kind, bytes, start_ns, end_ns, device, stream, correlation_id, graph);
    record.srcKind = record.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    emit(record);
    return;
  }
  auto record = moved<CUpti_ActivityMemcpy6>(kind, bytes, start_ns, end_ns, device, stream, correlation_id, graph);
  record.copyKind = static_cast<std::uint8_t>(copy_kind);
  record.srcKind = static_cast<std::uint8_t>(source);
  record.dstKind = static_cast<std::uint8_t>(destination);
  emit(record);
}

void fake_set(std::uint64_t bytes, std::uint64_t start_ns, std::uint64_t end_ns, std::uint32_t device,
              std::uint32_t stream, std::uint32_t correlation_id, std::uint32_t graph) {
  constexpr CUpti_ActivityKind kKind = CUPTI_ACTIVITY_KIND_MEMSET;
  if (!is_enabled(kKind)) return;
  emit(moved<CUpti_ActivityMemset4>(kKind, bytes, start_ns, end_ns, device, stream, correlation_id, graph));
}

void fake_allocation(int is_release, std::uint64_t address, std::uint64_t bytes, std::uint64_t time_ns,
                     std::uint32_t device, std::uint32_t stream, std::uint32_t correlation_id) {
  if (!is_enabled(CUPTI_ACTIVITY_KIND_MEMORY2)) return;
  CUpti_ActivityMemory4 record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
  record.memoryOperationType =
      is_release != 0 ? CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE : CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  record.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  record.address = address;
  record.bytes = bytes;
  record.timestamp = time_ns;
  record.deviceId = device;
  record.streamId = stream;
  record.correlationId = correlation_id;
  emit(record);
}

void fake_call(int is_driver, std::uint32_t id, std::uint64_t start_ns, std::uint64_t end_ns, std::uint32_t thread,
               std::uint32_t correlation_id, std::uint32_t return_value) {
  const CUpti_ActivityKind kind = is_driver != 0 ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME;
  if (!is_call_enabled(kind, id)) return;
  // "Wrong correlation ids in profiling sessions after the first" (release notes).
  if (is_driver == 0 && id == kGraphLaunch && count_sessions() > 1 && fake_version() < kFirstWithGraphsAgain)
    correlation_id += 1'000'000;
  CUpti_ActivityAPI record{};
  record.kind = kind;
  record.cbid = id;
  record.start = start_ns;
  record.end = end_ns;
  record.threadId = thread;
  record.correlationId = correlation_id;
  record.returnValue = return_value;
  emit(record);
}

void fake_wait(std::uint32_t type, std::uint64_t start_ns, std::uint64_t end_ns, std::uint32_t stream,
               std::uint32_t correlation_id) {
  if (!is_enabled(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION)) return;
  CUpti_ActivitySynchronization2 record{};
  record.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  record.type = static_cast<CUpti_ActivitySynchronizationType>(type);
  record.start = start_ns;
  record.end = end_ns;
  record.streamId = stream;
  record.correlationId = correlation_id;
  emit(record);
}

void fake_overhead(std::uint32_t overhead_kind, std::uint64_t start_ns, std::uint64_t end_ns) {
  if (!is_enabled(CUPTI_ACTIVITY_KIND_OVERHEAD)) return;
  CUpti_ActivityOverhead3 record{};
  record.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  record.overheadKind = static_cast<CUpti_ActivityOverheadKind>(overhead_kind);
  record.start = start_ns;
  record.end = end_ns;
  emit(record);
}

// CUPTI tells of a device once, when CUDA is initialised; who asks later is not told.
void fake_device(std::uint32_t device, const char* name) {
  static auto& told = *new std::set<std::uint32_t>;
  if (!told.insert(device).second) return;
  if (!is_enabled(CUPTI_ACTIVITY_KIND_DEVICE)) return;
  CUpti_ActivityDevice5 record{};
  record.kind = CUPTI_ACTIVITY_KIND_DEVICE;
  record.id = device;
  record.name = keep(name);
  record.computeCapabilityMajor = 9;
  record.computeCapabilityMinor = 0;
  record.numMultiprocessors = 132;
  record.globalMemorySize = std::uint64_t{80} << 30;
  record.globalMemoryBandwidth = 3'352'320'000;
  record.l2CacheSize = 52'428'800;
  record.coreClockRate = 1'980'000;
  record.maxSharedMemoryPerMultiprocessor = 233'472;
  record.maxRegistersPerMultiprocessor = 65'536;
  record.maxWarpsPerMultiprocessor = 64;
  emit(record);
}

void fake_environment(std::uint32_t device, std::uint32_t kind, std::uint64_t time_ns, std::uint32_t first,
                      std::uint32_t second, std::uint32_t reasons) {
  if (!is_enabled(CUPTI_ACTIVITY_KIND_ENVIRONMENT)) return;
  CUpti_ActivityEnvironment record{};
  record.kind = CUPTI_ACTIVITY_KIND_ENVIRONMENT;
  record.deviceId = device;
  record.timestamp = time_ns;
  record.environmentKind = static_cast<CUpti_ActivityEnvironmentKind>(kind);
  if (kind == CUPTI_ACTIVITY_ENVIRONMENT_SPEED) {
    record.data.speed.smClock = first;
    record.data.speed.memoryClock = second;
    record.data.speed.clocksThrottleReasons = static_cast<CUpti_EnvironmentClocksThrottleReason>(reasons);
  } else if (kind == CUPTI_ACTIVITY_ENVIRONMENT_POWER) {
    record.data.power.power = first;
    record.data.power.powerLimit = second;
  } else {
    record.data.temperature.gpuTemperature = first;
  }
  emit(record);
}

}  // extern "C"
