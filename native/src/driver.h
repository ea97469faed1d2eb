// The little of the CUDA driver that the collector calls, looked up in the process: nothing is linked, and without a
// driver each call says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace curvescope::driver {

// Loads the driver; false if there is none.
bool load() noexcept;

// From cuDriverGetVersion: 12040 is CUDA 12.4; 0 if unknown.
int version() noexcept;

// False if the driver says that this process sees no device; true also if it cannot say.
bool sees_device() noexcept;

// Waits for the work of this thread's context and of each device's primary context, the one that CUDA's runtime uses.
void wait_for_contexts() noexcept;

// What a device record of CUPTI has, in its units.
struct Device {
  std::uint32_t id;
  std::string name;
  std::uint64_t memory_bytes;
  std::uint64_t memory_bandwidth_kbyte_per_s;
  int compute_capability_major, compute_capability_minor;
  int sm_count, l2_bytes, sm_clock_khz;
  int shared_memory_per_sm_bytes, registers_per_sm, warps_per_sm;
};

// All devices that this process sees; empty if CUDA is not initialised. May throw std::bad_alloc.
std::vector<Device> devices();

}  // namespace curvescope::driver
