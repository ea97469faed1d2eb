// A record of CUDA 11, 12 and 13 begins as the oldest of its kind did: fields never moved, they were only added at the
// end (tests/data/cupti_layouts holds what the headers say). So each record is read as the oldest type that has the
// fields, and a field younger than CUDA 11.0 only from the libcupti versions that write it.
#include "record_reader.h"

#include <cupti_activity.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstring>

#include "driver.h"

namespace curvescope {

namespace {

constexpr std::uint32_t kFirstWithTransferGraphs = 14;  // CUDA 11.1
constexpr std::size_t kProbes = 8;
constexpr std::uint32_t kMostCalls = 4096;  // callback ids; CUDA 13.5 has some 800 in the driver

// Start and duration; CUPTI writes 0 where it could not time, and where the work had not ended at a forced flush.
struct Times {
  std::uint64_t start_ns;
  std::uint64_t duration_ns;
  std::uint64_t timed;

  Times(std::uint64_t start, std::uint64_t end) noexcept {
    timed = start != 0 && end >= start;
    start_ns = start;
    duration_ns = timed != 0 ? end - start : 0;
  }
};

template <std::size_t N>
void add_row(Columns* table, const std::array<std::uint64_t, N>& row, ChunkWriter* writer) noexcept {
  if (table->full()) writer->write_table(table);
  table->append(row);
}

template <typename... Values>
std::array<std::uint64_t, sizeof...(Values)> row(Values... values) noexcept {
  return {static_cast<std::uint64_t>(values)...};
}

}  // namespace

RecordReader::RecordReader(const CuptiApi& api, std::uint32_t cupti_version, Names* names)
    : api_(api),
      transfers_have_graphs_(cupti_version >= kFirstWithTransferGraphs),
      names_(names),
      kernels_("kernels", {{"name", true},
                           {"start_ns"},
                           {"duration_ns"},
                           {"timed"},
                           {"device"},
                           {"context"},
                           {"stream"},
                           {"correlation_id"},
                           {"grid_x"},
                           {"grid_y"},
                           {"grid_z"},
                           {"block_x"},
                           {"block_y"},
                           {"block_z"},
                           {"registers_per_thread"},
                           {"shared_memory_bytes"},
                           {"graph_id"},
                           {"graph_node_id"}}),
      copies_("copies", {{"copy_kind"},
                         {"source_memory"},
                         {"destination_memory"},
                         {"start_ns"},
                         {"duration_ns"},
                         {"timed"},
                         {"bytes"},
                         {"device"},
                         {"context"},
                         {"stream"},
                         {"correlation_id"},
                         {"graph_id"},
                         {"graph_node_id"}}),
      sets_("sets", {{"start_ns"},
                     {"duration_ns"},
                     {"timed"},
                     {"bytes"},
                     {"device"},
                     {"context"},
                     {"stream"},
                     {"correlation_id"},
                     {"graph_id"},
                     {"graph_node_id"}}),
      allocations_("allocations", {{"operation"},
                                   {"memory_kind"},
                                   {"time_ns"},
                                   {"bytes"},
                                   {"address"},
                                   {"device"},
                                   {"stream"},
                                   {"correlation_id"}}),
      calls_table_("calls", {{"name", true},
                             {"is_driver"},
                             {"start_ns"},
                             {"duration_ns"},
                             {"timed"},
                             {"thread"},
                             {"correlation_id"},
                             {"return_value"}}),
      waits_("waits", {{"type"}, {"start_ns"}, {"duration_ns"}, {"context"}, {"stream"}, {"correlation_id"}}),
      overheads_("overheads", {{"kind"}, {"start_ns"}, {"duration_ns"}}),
      devices_("devices", {{"device"},
                           {"name", true},
                           {"compute_capability_major"},
                           {"compute_capability_minor"},
                           {"sm_count"},
                           {"memory_bytes"},
                           {"memory_bandwidth_kbyte_per_s"},
                           {"l2_bytes"},
                           {"sm_clock_khz"},
                           {"shared_memory_per_sm_bytes"},
                           {"registers_per_sm"},
                           {"warps_per_sm"}}),
      contexts_("contexts", {{"context"}, {"device"}, {"null_stream"}}),
      environment_("environment", {{"device"}, {"time_ns"}, {"kind"}, {"first"}, {"second"}, {"throttle_reasons"}}),
      clock_("clock", {{"host_ns"}, {"cupti_ns"}, {"error_ns"}}) {}

void RecordReader::read(std::uint8_t* buffer, std::size_t bytes, const std::atomic<bool>& gone,
                        ChunkWriter* writer) noexcept {
  CUpti_Activity* record = nullptr;
  CUptiResult result = CUPTI_ERROR_MAX_LIMIT_REACHED;
  if (distrusts_times_ && api_.GetTimestamp(&now_) != CUPTI_SUCCESS) now_ = 0;
  while (bytes != 0 && !gone.load(std::memory_order_relaxed)) {
    result = api_.ActivityGetNextRecord(buffer, bytes, &record);
    if (result != CUPTI_SUCCESS) break;
    try {
      add(record, writer);
    } catch (...) {
      writer->lose("records_without_memory", 1);
    }
  }
  if (result != CUPTI_ERROR_MAX_LIMIT_REACHED) writer->lose("cupti_buffers_cut", 1);
}

void RecordReader::add(const CUpti_Activity* record, ChunkWriter* writer) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return add_kernel(record, writer);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
    case CUPTI_ACTIVITY_KIND_MEMSET:
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      return add_transfer(record, writer);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return add_call(record, writer);
    default:
      return add_fact(record, writer);
  }
}

bool RecordReader::is_impossible(std::uint64_t start, ChunkWriter* writer) noexcept {
  constexpr std::uint64_t kFarNs = 3'600'000'000'000;  // an hour; records are read within a second
  if (!distrusts_times_ || start == 0 || now_ == 0) return false;
  const std::uint64_t away = start > now_ ? start - now_ : now_ - start;
  if (away <= kFarNs) return false;
  writer->lose("times_impossible", 1);
  return true;
}

void RecordReader::add_kernel(const CUpti_Activity* record, ChunkWriter* writer) {
  const auto& k = *reinterpret_cast<const CUpti_ActivityKernel5*>(record);
  if (is_impossible(k.start, writer)) return;
  const Times times(k.start, k.end);
  has_kernels_ = true;
  has_graphs_ |= k.graphId != 0;
  add_row(&kernels_,
          row(kernel_name(k.name), times.start_ns, times.duration_ns, times.timed, k.deviceId, k.contextId, k.streamId,
              k.correlationId, static_cast<std::uint32_t>(k.gridX), static_cast<std::uint32_t>(k.gridY),
              static_cast<std::uint32_t>(k.gridZ), static_cast<std::uint32_t>(k.blockX),
              static_cast<std::uint32_t>(k.blockY), static_cast<std::uint32_t>(k.blockZ), k.registersPerThread,
              std::uint64_t{static_cast<std::uint32_t>(k.staticSharedMemory)} +
                  static_cast<std::uint32_t>(k.dynamicSharedMemory),
              k.graphId, k.graphNodeId),
          writer);
}

void RecordReader::add_transfer(const CUpti_Activity* record, ChunkWriter* writer) {
  if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto& c = *reinterpret_cast<const CUpti_ActivityMemcpy4*>(record);
    if (is_impossible(c.start, writer)) return;
    const Times times(c.start, c.end);
    add_row(&copies_,
            row(c.copyKind, c.srcKind, c.dstKind, times.start_ns, times.duration_ns, times.timed, c.bytes, c.deviceId,
                c.contextId, c.streamId, c.correlationId, transfers_have_graphs_ ? c.graphId : 0,
                transfers_have_graphs_ ? c.graphNodeId : 0),
            writer);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY2) {
    const auto& c = *reinterpret_cast<const CUpti_ActivityMemcpyPtoP3*>(record);
    if (is_impossible(c.start, writer)) return;
    const Times times(c.start, c.end);
    add_row(&copies_,
            row(CUPTI_ACTIVITY_MEMCPY_KIND_PTOP, c.srcKind, c.dstKind, times.start_ns, times.duration_ns, times.timed,
                c.bytes, c.deviceId, c.contextId, c.streamId, c.correlationId, transfers_have_graphs_ ? c.graphId : 0,
                transfers_have_graphs_ ? c.graphNodeId : 0),
            writer);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto& s = *reinterpret_cast<const CUpti_ActivityMemset3*>(record);
    if (is_impossible(s.start, writer)) return;
    const Times times(s.start, s.end);
    add_row(&sets_,
            row(times.start_ns, times.duration_ns, times.timed, s.bytes, s.deviceId, s.contextId, s.streamId,
                s.correlationId, transfers_have_graphs_ ? s.graphId : 0, transfers_have_graphs_ ? s.graphNodeId : 0),
            writer);
  } else {
    const auto& m = *reinterpret_cast<const CUpti_ActivityMemory2*>(record);
    add_row(&allocations_,
            row(m.memoryOperationType, m.memoryKind, m.timestamp, m.bytes, m.address, m.deviceId, m.streamId,
                m.correlationId),
            writer);
  }
}

void RecordReader::add_call(const CUpti_Activity* record, ChunkWriter* writer) {
  if (record->kind == CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) {
    const auto& s = *reinterpret_cast<const CUpti_ActivitySynchronization*>(record);
    const Times times(s.start, s.end);
    add_row(&waits_, row(s.type, times.start_ns, times.duration_ns, s.contextId, s.streamId, s.correlationId), writer);
    return;
  }
  const auto& c = *reinterpret_cast<const CUpti_ActivityAPI*>(record);
  const bool is_driver = record->kind == CUPTI_ACTIVITY_KIND_DRIVER;
  const Call* call = call_of(is_driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API, c.cbid);
  if (call == nullptr) return;
  probes_ += call->probe;
  if (!call->wanted) return;
  const Times times(c.start, c.end);
  add_row(&calls_table_,
          row(call->name, is_driver, times.start_ns, times.duration_ns, times.timed, c.threadId, c.correlationId,
              c.returnValue),
          writer);
}

void RecordReader::add_fact(const CUpti_Activity* record, ChunkWriter* writer) {
  if (record->kind == CUPTI_ACTIVITY_KIND_OVERHEAD) {
    const auto& o = *reinterpret_cast<const CUpti_ActivityOverhead*>(record);
    const Times times(o.start, o.end);
    add_row(&overheads_, row(o.overheadKind, times.start_ns, times.duration_ns), writer);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_DEVICE) {
    const auto& d = *reinterpret_cast<const CUpti_ActivityDevice2*>(record);
    told_devices_.push_back(d.id);
    add_row(
        &devices_,
        row(d.id, names_->intern(d.name == nullptr ? "" : d.name), d.computeCapabilityMajor, d.computeCapabilityMinor,
            d.numMultiprocessors, d.globalMemorySize, d.globalMemoryBandwidth, d.l2CacheSize, d.coreClockRate,
            d.maxSharedMemoryPerMultiprocessor, d.maxRegistersPerMultiprocessor, d.maxWarpsPerMultiprocessor),
        writer);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_CONTEXT) {
    const auto& c = *reinterpret_cast<const CUpti_ActivityContext*>(record);
    add_row(&contexts_, row(c.contextId, c.deviceId, c.nullStreamId), writer);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_ENVIRONMENT) {
    const auto& e = *reinterpret_cast<const CUpti_ActivityEnvironment*>(record);
    // The kinds share a union: two numbers each, and for clocks also the throttle reasons.
    const bool speed = e.environmentKind == CUPTI_ACTIVITY_ENVIRONMENT_SPEED;
    const bool power = e.environmentKind == CUPTI_ACTIVITY_ENVIRONMENT_POWER;
    add_row(&environment_,
            row(e.deviceId, e.timestamp, e.environmentKind,
                speed   ? e.data.speed.smClock
                : power ? e.data.power.power
                        : e.data.temperature.gpuTemperature,
                speed   ? e.data.speed.memoryClock
                : power ? e.data.power.powerLimit
                        : 0,
                speed ? static_cast<std::uint32_t>(e.data.speed.clocksThrottleReasons) : 0),
            writer);
  } else if (record->kind != CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) {
    // Those are ids that Kineto gives its operators. It collects them also beside the collector, and they tell no work.
    writer->lose("records_of_unknown_kind", 1);
  }
}

void RecordReader::add_missing_devices(ChunkWriter* writer) {
  for (const driver::Device& d : driver::devices()) {
    if (std::find(told_devices_.begin(), told_devices_.end(), d.id) != told_devices_.end()) continue;
    add_row(&devices_,
            row(d.id, names_->intern(d.name), d.compute_capability_major, d.compute_capability_minor, d.sm_count,
                d.memory_bytes, d.memory_bandwidth_kbyte_per_s, d.l2_bytes, d.sm_clock_khz,
                d.shared_memory_per_sm_bytes, d.registers_per_sm, d.warps_per_sm),
            writer);
  }
  told_devices_.clear();
}

void RecordReader::add_clock_sample(std::int64_t before_ns, std::uint64_t cupti_ns, std::int64_t after_ns,
                                    ChunkWriter* writer) noexcept {
  add_row(&clock_, row(before_ns + (after_ns - before_ns) / 2, cupti_ns, (after_ns - before_ns + 1) / 2), writer);
}

void RecordReader::write(ChunkWriter* writer) noexcept {
  for (Columns* table : {&kernels_, &copies_, &sets_, &allocations_, &calls_table_, &waits_, &overheads_, &devices_,
                         &contexts_, &environment_, &clock_}) {
    writer->write_table(table);
  }
}

std::uint32_t RecordReader::kernel_name(const char* mangled) {
  if (mangled == nullptr) return Names::kEmpty;
  // Probes a few slots after the hash, so that names of equal hash do not evict each other at every record.
  const auto hash = (reinterpret_cast<std::uintptr_t>(mangled) * 0x9E3779B97F4A7C15U) >> 52U;
  KnownName* place = &known_names_[hash];
  for (std::size_t step = 0; step < kProbes; ++step) {
    KnownName& known = known_names_[(hash + step) % known_names_.size()];
    if (known.address == mangled) {
      if (std::strcmp(known.text.c_str(), mangled) == 0) return known.id;
      place = &known;
      break;
    }
    if (known.address == nullptr) {
      place = &known;
      break;
    }
  }
  int failed = 0;
  char* demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &failed);
  std::uint32_t id = Names::kDropped;
  try {
    id = names_->intern(failed == 0 && demangled != nullptr ? demangled : mangled);
    place->address = nullptr;
    place->text = mangled;
    place->id = id;
    place->address = mangled;
  } catch (...) {
    // Without memory, only the name is lost.
  }
  std::free(demangled);
  return id;
}

const RecordReader::Call* RecordReader::call_of(CUpti_CallbackDomain domain, std::uint32_t id) {
  std::vector<Call>& calls = calls_[domain == CUPTI_CB_DOMAIN_DRIVER_API ? 1 : 0];
  constexpr Call kUnknown{~0U, false, false};
  if (id >= kMostCalls) return nullptr;
  if (id >= calls.size()) calls.resize(id + 1, kUnknown);
  Call& call = calls[id];
  if (call.name == kUnknown.name) {
    const char* name = nullptr;
    if (api_.GetCallbackName(domain, id, &name) != CUPTI_SUCCESS || name == nullptr) name = "";
    std::string_view text = name;
    // cudaLaunchKernel_v7000 and cuMemcpy_v2 are versions of the functions that programs call.
    const std::size_t version = text.rfind("_v");
    if (version != std::string_view::npos &&
        text.find_first_not_of("0123456789", version + 2) == std::string_view::npos)
      text = text.substr(0, version);
    call = {names_->intern(text), is_wanted(name), is_probe(name)};
  }
  return &call;
}

bool RecordReader::is_probe(const char* call) noexcept { return std::strcmp(call, "cuDriverGetVersion") == 0; }

bool RecordReader::is_wanted(const char* call) noexcept {
  for (const char* part : {"Launch", "Memcpy", "Memset", "Synchronize", "Malloc", "MemAlloc", "Free", "WaitEvent",
                           "GraphInstantiate", "MemPrefetch", "MemMap", "MemUnmap"}) {
    if (std::strstr(call, part) != nullptr) return true;
  }
  return false;
}

}  // namespace curvescope
