// A test double of the CUDA driver (libcuda.so.1): loads the injected library as the driver does, and has one device
// whose kernels do nothing; the double of libcupti gets their records.
#include "fake_cupti.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>

namespace {
std::atomic<int> synchronized{0};

template <typename Function>
Function of_cupti(const char* name) {
  const char* path = std::getenv("FAKE_CUPTI");
  void* library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}
}

extern "C" {

int cuInit(unsigned int) {
  static std::atomic<bool> done{false};
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr || done.exchange(true)) return 0;
  void* library = dlopen(path, RTLD_NOW);
  auto* initialize = library == nullptr ? nullptr : reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  return initialize == nullptr || initialize() == 1 ? 0 : 999;
}

int cuDriverGetVersion(int* version) {
  const char* wanted = std::getenv("FAKE_CUDA_DRIVER");
  *version = wanted == nullptr ? 13050 : std::atoi(wanted);
  return 0;
}

int cuCtxGetCurrent(void** context) {
  *context = &synchronized;
  return 0;
}

int cuCtxSynchronize() {
  ++synchronized;
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}

int cuDeviceGet(int* device, int index) {
  *device = index;
  return index == 0 ? 0 : 101;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : 0;  // compute capability 9.0
  return 0;
}

int cuDeviceGetPCIBusId(char*, int, int) { return 801; }
int cuDevicePrimaryCtxRetain(void**, int) { return 0; }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuModuleLoadData(void**, const void*) { return 0; }
int cuModuleGetFunction(void**, void*, const char*) { return 0; }

int cuLaunchKernel(void*, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                   unsigned int block_y, unsigned int block_z, unsigned int, void*, void**, void**) {
  static std::atomic<std::uint32_t> launched{0};
  auto* now = of_cupti<decltype(&fake_cupti_now)>("fake_cupti_now");
  auto* emit = of_cupti<decltype(&fake_kernel)>("fake_kernel");
  if (now == nullptr || emit == nullptr) return 0;
  FakeKernel kernel{};
  kernel.name = "curvescope_empty";
  kernel.start_ns = now();
  kernel.end_ns = kernel.start_ns + 1;
  kernel.correlation_id = ++launched;
  const unsigned int grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
  for (int axis = 0; axis < 3; ++axis) {
    kernel.grid[axis] = static_cast<std::int32_t>(grid[axis]);
    kernel.block[axis] = static_cast<std::int32_t>(block[axis]);
  }
  kernel.registers_per_thread = 4;
  emit(&kernel);
  return 0;
}

int fake_synchronized() { return synchronized; }

}  // extern "C"
