#include "driver.h"

#include <cuda.h>
#include <dlfcn.h>

#include <atomic>

namespace curvescope::driver {

namespace {

std::atomic<void*> library{nullptr};

// Null if this driver lacks the function.
template <typename Function>
Function* find(const char* name) noexcept {
  void* loaded = library;
  if (loaded == nullptr) loaded = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return loaded == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(loaded, name));
}

// The header defines cuCtxPushCurrent and others as their newest version's name.
#define CURVESCOPE_TEXT(name) #name
#define CURVESCOPE_FIND(name) find<decltype(::name)>(CURVESCOPE_TEXT(name))

int device_count() noexcept {
  int count = 0;
  const auto get = CURVESCOPE_FIND(cuDeviceGetCount);
  return get != nullptr && get(&count) == CUDA_SUCCESS ? count : 0;
}

void wait_for_primary_contexts(CUcontext current) noexcept {
  const auto is_active = CURVESCOPE_FIND(cuDevicePrimaryCtxGetState);
  const auto retain = CURVESCOPE_FIND(cuDevicePrimaryCtxRetain);
  const auto release = CURVESCOPE_FIND(cuDevicePrimaryCtxRelease);
  const auto push = CURVESCOPE_FIND(cuCtxPushCurrent);
  const auto pop = CURVESCOPE_FIND(cuCtxPopCurrent);
  const auto synchronize = CURVESCOPE_FIND(cuCtxSynchronize);
  if (is_active == nullptr || retain == nullptr || release == nullptr || push == nullptr || pop == nullptr ||
      synchronize == nullptr)
    return;
  for (CUdevice device = 0, count = device_count(); device < count; ++device) {
    unsigned int flags = 0;
    int active = 0;
    CUcontext context = nullptr;
    if (is_active(device, &flags, &active) != CUDA_SUCCESS || active == 0) continue;  // retaining would make one
    if (retain(&context, device) != CUDA_SUCCESS) continue;
    if (context != current && push(context) == CUDA_SUCCESS) {
      synchronize();
      pop(&context);
    }
    release(device);
  }
}

}  // namespace

bool load() noexcept {
  if (library == nullptr) library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library != nullptr;
}

int version() noexcept {
  int found = 0;
  const auto get = CURVESCOPE_FIND(cuDriverGetVersion);
  return get != nullptr && get(&found) == CUDA_SUCCESS ? found : 0;
}

bool sees_device() noexcept {
  const auto init = CURVESCOPE_FIND(cuInit);
  return init == nullptr || init(0) != CUDA_ERROR_NO_DEVICE;
}

void wait_for_contexts() noexcept {
  const auto get = CURVESCOPE_FIND(cuCtxGetCurrent);
  const auto synchronize = CURVESCOPE_FIND(cuCtxSynchronize);
  CUcontext current = nullptr;
  if (get != nullptr && synchronize != nullptr && get(&current) == CUDA_SUCCESS && current != nullptr) synchronize();
  wait_for_primary_contexts(current);
}

std::vector<Device> devices() {
  std::vector<Device> found;
  const auto attribute = CURVESCOPE_FIND(cuDeviceGetAttribute);
  const auto name_of = CURVESCOPE_FIND(cuDeviceGetName);
  const auto memory = CURVESCOPE_FIND(cuDeviceTotalMem);
  if (attribute == nullptr || name_of == nullptr || memory == nullptr) return found;
  for (CUdevice device = 0, count = device_count(); device < count; ++device) {
    const auto value = [&](CUdevice_attribute which) {
      int read = 0;
      return attribute(&read, which, device) == CUDA_SUCCESS ? read : 0;
    };
    char name[256] = "";
    std::size_t bytes = 0;
    if (name_of(name, sizeof(name), device) != CUDA_SUCCESS || memory(&bytes, device) != CUDA_SUCCESS) continue;
    const int warp = value(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    found.push_back(
        {static_cast<std::uint32_t>(device), name, bytes,
         // Two transfers a clock, as CUPTI reckons.
         std::uint64_t{2} * static_cast<std::uint64_t>(value(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)) *
             static_cast<std::uint64_t>(value(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)) / 8,
         value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
         value(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), value(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
         value(CU_DEVICE_ATTRIBUTE_CLOCK_RATE), value(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
         value(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
         warp == 0 ? 0 : value(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / warp});
  }
  return found;
}

}  // namespace curvescope::driver
