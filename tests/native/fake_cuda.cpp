// A test double of the CUDA driver (libcuda.so.1): loads the injected library as the driver does, knows contexts and
// the attributes of devices, and has kernels that do nothing; the double of libcupti gets their records.
//
// FAKE_CUDA_DRIVER is the version it reports, FAKE_CUDA_DEVICES the number of devices (default 1), FAKE_CUDA_ACTIVE how
// many of them have an active primary context (default 1). With FAKE_CUDA_TRACED the double of libcupti that FAKE_CUPTI
// names gets a record of each cuDriverGetVersion.
#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "fake_cupti.h"

namespace {

constexpr int kMostDevices = 8;
constexpr std::uint32_t kDriverGetVersion = 4;  // in the double's list of calls

std::array<std::atomic<int>, kMostDevices> waits{};  // by device
std::atomic<bool> initialized{false};
thread_local int current = -1;  // device of the pushed context; -1: that of device 0

int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

int devices() { return setting("FAKE_CUDA_DEVICES", 1); }

CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(&waits[static_cast<std::size_t>(device)]); }

// Null without the double of libcupti.
template <typename Function>
Function* of_cupti(const char* name) {
  const char* path = std::getenv("FAKE_CUPTI");
  void* cupti = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  return cupti == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(cupti, name));
}

void trace_version() {
  using Call =
      void(std::uint32_t, std::uint32_t, std::uint64_t, std::uint64_t, std::uint32_t, std::uint32_t, std::uint32_t);
  auto* now = of_cupti<decltype(fake_cupti_now)>("fake_cupti_now");
  auto* call = of_cupti<Call>("fake_call");
  if (std::getenv("FAKE_CUDA_TRACED") == nullptr || now == nullptr || call == nullptr) return;
  const std::uint64_t at = now();
  call(1, kDriverGetVersion, at, at + 1, 1, 0, 0);
}

// As the kernel that reads clocks: each block on the SM of its number, a millisecond and 1.5 million cycles after the
// last launch.
void read_clocks(std::uint64_t* places, unsigned int blocks) {
  static std::uint64_t launches = 0;
  ++launches;
  for (unsigned int sm = 0; sm < blocks; ++sm) {
    places[2 * sm] = sm + launches * 1'500'000;
    places[2 * sm + 1] = launches * 1'000'000;
  }
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned int) {
  static std::atomic<bool> done{false};
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path != nullptr && !done.exchange(true)) {
    void* library = dlopen(path, RTLD_NOW);
    auto* initialize =
        library == nullptr ? nullptr : reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
    if (initialize != nullptr && initialize() != 1) return CUDA_ERROR_UNKNOWN;
  }
  if (devices() == 0) return CUDA_ERROR_NO_DEVICE;
  initialized = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  *version = setting("FAKE_CUDA_DRIVER", 13050);
  trace_version();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;
  *count = devices();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int index) {
  *device = index;
  return index < devices() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetPCIBusId(char*, int, CUdevice) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  std::snprintf(name, static_cast<std::size_t>(bytes), "Test Double %d of the driver", device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  *bytes = std::size_t{80} << 30;
  return CUDA_SUCCESS;
}

// An H100 SXM.
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *value = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      *value = 1'980'000;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 132;
      break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      *value = 2'619'000;
      break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      *value = 5120;
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = 52'428'800;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      *value = 2048;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *value = 233'472;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      *value = 65'536;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  *flags = 0;
  *active = initialized && device < setting("FAKE_CUDA_ACTIVE", 1) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = context_of(device);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = context_of(current < 0 ? 0 : current);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  current = static_cast<int>(reinterpret_cast<std::atomic<int>*>(context) - waits.data());
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  *context = context_of(current < 0 ? 0 : current);
  current = -1;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  ++waits[static_cast<std::size_t>(current < 0 ? 0 : current)];
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }

CUresult cuMemAllocHost(void** memory, std::size_t bytes) {
  *memory = std::calloc(1, bytes);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule*, const void*) { return CUDA_SUCCESS; }

CUresult cuModuleGetFunction(CUfunction*, CUmodule, const char*) { return CUDA_SUCCESS; }

CUresult cuLaunchKernel(CUfunction, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                        unsigned int block_y, unsigned int block_z, unsigned int, CUstream, void** arguments, void**) {
  static std::atomic<std::uint32_t> launched{0};
  if (arguments != nullptr) read_clocks(static_cast<std::uint64_t**>(arguments[0])[0], grid_x);
  if (auto* range = of_cupti<decltype(fake_range_kernel)>("fake_range_kernel")) range();
  auto* now = of_cupti<decltype(fake_cupti_now)>("fake_cupti_now");
  auto* emit = of_cupti<decltype(fake_kernel)>("fake_kernel");
  if (now == nullptr || emit == nullptr) return CUDA_SUCCESS;
  FakeKernel kernel{};
  kernel.name = "curvescope_empty";
  kernel.start_ns = now();
  kernel.end_ns = kernel.start_ns + 1;
  kernel.correlation_id = ++launched;
  const unsigned int grid[] = {grid_x, grid_y, grid_z};
  const unsigned int block[] = {block_x, block_y, block_z};
  for (int axis = 0; axis < 3; ++axis) {
    kernel.grid[axis] = static_cast<std::int32_t>(grid[axis]);
    kernel.block[axis] = static_cast<std::int32_t>(block[axis]);
  }
  kernel.registers_per_thread = 4;
  emit(&kernel);
  return CUDA_SUCCESS;
}

// What tests call.

int fake_synchronized(int device) { return waits[static_cast<std::size_t>(device)]; }

}  // extern "C"
