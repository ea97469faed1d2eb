// NVML: facts, clocks, power and energy of the virtual cards. The wheels have no nvml.h, so its types stand here as its
// documentation gives them.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "card.h"

namespace card {

namespace {

enum NvmlReturn { kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7 };
constexpr int kSmClocks[] = {0, 1};  // NVML_CLOCK_GRAPHICS and _SM; 2 is that of the memory
// nvmlClocksEventReasons
constexpr unsigned long long kIdle = 0x1, kSoftwarePowerCap = 0x4, kSoftwareThermalSlowdown = 0x20;
constexpr double kCelsius = 50, kCelsiusHot = 87;
constexpr char kUuid[] = "GPU-56000000-0000-0000-0000-0000000000%02x";  // as cuDeviceGetUuid_v2 has it
constexpr Ns kRemembers = 100'000'000;  // for how long NVML tells the clock of the last kernel

struct ProcessInfo {  // nvmlProcessInfo_v2_t
  unsigned int pid;
  unsigned long long used_bytes;
  unsigned int gpu_instance, compute_instance;
};

struct ShortProcessInfo {  // nvmlProcessInfo_v1_t
  unsigned int pid;
  unsigned long long used_bytes;
};

struct Utilization {
  unsigned int gpu, memory;
};

struct MemoryInfo {
  unsigned long long total, free, used;
};

struct PciInfo {
  char legacy_id[16];
  unsigned int domain, bus, device, device_id, subsystem_id;
  char id[32];
};

struct FabricInfo {  // nvmlGpuFabricInfo_v2_t
  unsigned int version;
  unsigned char cluster[16];
  NvmlReturn status;
  unsigned int clique;
  unsigned char state;
  unsigned int health;
};

Device* device_of(void* handle) { return static_cast<Device*>(handle); }

double clock_share(const Device& on) { return now() < on.clock_until + kRemembers ? on.clock : resting_share(on); }

NvmlReturn give(unsigned int* to, double value) {
  *to = static_cast<unsigned int>(value);
  return kSuccess;
}

// This process, and with the plant `neighbour` the one of that number.
template <typename Info>
NvmlReturn tell_processes(void* handle, unsigned int* count, Info* processes) {
  const int neighbour = config().neighbour_pid;
  const unsigned int found = neighbour > 0 ? 2 : 1;
  const bool fits = processes != nullptr && *count >= found;
  *count = found;
  if (!fits) return kInsufficientSize;
  const auto tell = [&](Info& process, int pid, unsigned long long used_bytes) {
    process = Info{};
    process.pid = static_cast<unsigned int>(pid);
    process.used_bytes = used_bytes;
  };
  tell(processes[0], getpid(), device_of(handle)->used_bytes);
  if (found > 1) tell(processes[1], neighbour, 1ull << 30);
  return kSuccess;
}

bool is_sm_clock(int kind) { return kind == kSmClocks[0] || kind == kSmClocks[1]; }

}  // namespace

}  // namespace card

using card::kSuccess;
using NvmlReturn = card::NvmlReturn;

extern "C" {

NvmlReturn nvmlInit_v2() { return kSuccess; }
NvmlReturn nvmlInitWithFlags(unsigned int) { return kSuccess; }
NvmlReturn nvmlShutdown() { return kSuccess; }

const char* nvmlErrorString(NvmlReturn result) { return result == kSuccess ? "Success" : "Not of the virtual card"; }

NvmlReturn nvmlSystemGetDriverVersion(char* text, unsigned int bytes) {
  std::snprintf(text, bytes, "580.00.virtual");
  return kSuccess;
}

NvmlReturn nvmlSystemGetNVMLVersion(char* text, unsigned int bytes) { return nvmlSystemGetDriverVersion(text, bytes); }

NvmlReturn nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = CUDA_VERSION;
  return kSuccess;
}

NvmlReturn nvmlDeviceGetCount_v2(unsigned int* count) { return card::give(count, card::device_count()); }

NvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** handle) {
  if (index >= static_cast<unsigned int>(card::device_count())) return card::kInvalidArgument;
  *handle = &card::device(static_cast<int>(index));
  return kSuccess;
}

NvmlReturn nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** handle) {
  unsigned int domain = 0, bus = 0;  // of four digits or of eight
  if (std::sscanf(id, "%x:%x:", &domain, &bus) != 2 || domain != 0 || bus == 0) return card::kNotFound;
  return nvmlDeviceGetHandleByIndex_v2(bus - 1, handle) == kSuccess ? kSuccess : card::kNotFound;
}

NvmlReturn nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  unsigned int index = 0;
  if (std::sscanf(uuid, card::kUuid, &index) != 1) return card::kNotFound;
  return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

NvmlReturn nvmlDeviceGetName(void* handle, char* text, unsigned int bytes) {
  std::snprintf(text, bytes, "%s", card::device_of(handle)->facts->name.c_str());
  return kSuccess;
}

NvmlReturn nvmlDeviceGetUUID(void* handle, char* text, unsigned int bytes) {
  std::snprintf(text, bytes, card::kUuid, static_cast<unsigned int>(card::device_of(handle)->index));
  return kSuccess;
}

NvmlReturn nvmlDeviceGetPciInfo_v3(void* handle, card::PciInfo* info) {
  *info = card::PciInfo{};
  card::bus_id(info->id, sizeof info->id, card::device_of(handle)->index);
  info->bus = static_cast<unsigned int>(card::device_of(handle)->index) + 1;
  return kSuccess;
}

NvmlReturn nvmlDeviceGetCudaComputeCapability(void* handle, int* major, int* minor) {
  *major = card::device_of(handle)->facts->major;
  *minor = card::device_of(handle)->facts->minor;
  return kSuccess;
}

NvmlReturn nvmlDeviceGetMemoryInfo(void* handle, card::MemoryInfo* memory) {
  const card::Device& on = *card::device_of(handle);
  memory->total = on.facts->memory_bytes;
  memory->used = on.used_bytes;
  memory->free = memory->total - memory->used;
  return kSuccess;
}

NvmlReturn nvmlDeviceGetClockInfo(void* handle, int kind, unsigned int* mhz) {
  const card::Device& on = *card::device_of(handle);
  if (!card::is_sm_clock(kind)) return card::give(mhz, card::memory_clock_khz(*on.facts) / 1e3);
  return card::give(mhz, on.facts->clock_hz * card::clock_share(on) / 1e6);
}

NvmlReturn nvmlDeviceGetMaxClockInfo(void* handle, int kind, unsigned int* mhz) {
  const card::DeviceFacts& facts = *card::device_of(handle)->facts;
  return card::give(mhz, card::is_sm_clock(kind) ? facts.clock_hz / 1e6 : card::memory_clock_khz(facts) / 1e3);
}

NvmlReturn nvmlDeviceGetDefaultApplicationsClock(void* handle, int kind, unsigned int* mhz) {
  const card::DeviceFacts& facts = *card::device_of(handle)->facts;
  return card::give(mhz, card::is_sm_clock(kind) ? facts.base_clock_hz / 1e6 : card::memory_clock_khz(facts) / 1e3);
}

NvmlReturn nvmlDeviceSetGpuLockedClocks(void* handle, unsigned int, unsigned int most_mhz) {
  card::shared().locked_hz[card::device_of(handle)->index] = most_mhz * 1e6;
  return kSuccess;
}

NvmlReturn nvmlDeviceResetGpuLockedClocks(void* handle) {
  card::shared().locked_hz[card::device_of(handle)->index] = 0;
  return kSuccess;
}

NvmlReturn nvmlDeviceGetCurrentClocksThrottleReasons(void* handle, unsigned long long* reasons) {
  const card::Device& on = *card::device_of(handle);
  const bool is_slow = card::clock_share(on) < card::resting_share(on);
  *reasons = is_slow ? (card::is_hot(on) ? card::kSoftwareThermalSlowdown : card::kSoftwarePowerCap) : 0;
  if (card::now() >= on.clock_until) *reasons |= card::kIdle;
  return kSuccess;
}

NvmlReturn nvmlDeviceGetPowerUsage(void* handle, unsigned int* milliwatts) {
  const card::Costs& costs = card::config().costs;
  const bool busy = card::now() < card::ready_of(*card::device_of(handle));
  return card::give(milliwatts, (busy ? costs.watts_busy : costs.watts_idle) * 1e3);
}

NvmlReturn nvmlDeviceGetEnforcedPowerLimit(void*, unsigned int* milliwatts) {
  return card::give(milliwatts, card::config().costs.watts_limit * 1e3);
}

// Since the card's first use, as a driver's counter since it was loaded.
NvmlReturn nvmlDeviceGetTotalEnergyConsumption(void* handle, unsigned long long* millijoules) {
  static const card::Ns began = card::now();
  const card::Costs& costs = card::config().costs;
  card::Device& on = *card::device_of(handle);
  const card::Ns elapsed = card::now() - began, period = std::max<card::Ns>(1, static_cast<card::Ns>(costs.energy_ns));
  if (const card::Ns at = elapsed / period; at != on.energy_at) {
    const double busy_s = static_cast<double>(on.busy_ns) / 1e9, all_s = static_cast<double>(elapsed) / 1e9;
    on.energy_at = at;
    on.millijoules = 1e3 * (all_s * costs.watts_idle + busy_s * (costs.watts_busy - costs.watts_idle));
  }
  *millijoules = static_cast<unsigned long long>(on.millijoules);
  return kSuccess;
}

NvmlReturn nvmlDeviceGetTemperature(void* handle, int, unsigned int* celsius) {
  return card::give(celsius, card::is_hot(*card::device_of(handle)) ? card::kCelsiusHot : card::kCelsius);
}

NvmlReturn nvmlDeviceGetUtilizationRates(void* handle, card::Utilization* rates) {
  const bool busy = card::now() < card::ready_of(*card::device_of(handle)) || card::other_runs(card::now());
  *rates = {busy ? 100u : 0u, 0};
  return kSuccess;
}

NvmlReturn nvmlDeviceGetPersistenceMode(void*, int* mode) {
  *mode = 1;
  return kSuccess;
}

NvmlReturn nvmlDeviceGetEccMode(void*, int* current, int* pending) {
  *current = *pending = 1;
  return kSuccess;
}

NvmlReturn nvmlDeviceGetMigMode(void*, unsigned int* current, unsigned int* pending) {
  *current = *pending = 0;
  return kSuccess;
}

NvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned int* count, card::ProcessInfo* processes) {
  return card::tell_processes(handle, count, processes);
}

// PyTorch asks when memory has run out; before 2.14 it says so only where it gets an answer.
NvmlReturn nvmlDeviceGetComputeRunningProcesses(void* handle, unsigned int* count, card::ShortProcessInfo* processes) {
  return card::tell_processes(handle, count, processes);
}

// A card alone is in no fabric (NVML_GPU_FABRIC_STATE_NOT_SUPPORTED).
NvmlReturn nvmlDeviceGetGpuFabricInfoV(void*, card::FabricInfo* info) {
  info->state = 0;
  return kSuccess;
}

// PyTorch does not start where one of these is missing, and calls none of them here.
NvmlReturn nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned int, int*) { return card::kNotSupported; }
NvmlReturn nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned int, void*) { return card::kNotSupported; }

}  // extern "C"
