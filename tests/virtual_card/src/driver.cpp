// libcuda: what PyTorch, Triton, cupy, numba-cuda and Curvescope ask of the driver itself.
#include <cuda.h>
#include <cupti_activity.h>
#include <cupti_driver_cbid.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

#include "card.h"

namespace card {

namespace {

std::atomic<bool> context_open[kMostDevices];
std::atomic<bool> initialized{false};

CUcontext context_of(int index) { return reinterpret_cast<CUcontext>(&context_open[index]); }

int index_of(CUcontext context) {
  return static_cast<int>(reinterpret_cast<std::atomic<bool>*>(context) - context_open);
}

thread_local std::vector<CUcontext> pushed;  // contexts that were current before
thread_local bool is_detached = false;       // whether the last context was popped, and nobody used CUDA since

CUresult driver_error(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return CUDA_SUCCESS;
    case cudaErrorMemoryAllocation:
      return CUDA_ERROR_OUT_OF_MEMORY;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUstream handle(cudaStream_t stream) { return stream; }

}  // namespace

// CUDA_VISIBLE_DEVICES hides devices from the end: the first N, as numbers in their order, are all that tests use.
int visible_devices() {
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) return device_count();
  int visible = 0;
  std::istringstream listed(text);
  for (std::string one; std::getline(listed, one, ',') && !one.empty() && one[0] != '-';) ++visible;
  return std::min(visible, device_count());
}

// The first use of CUDA in a process loads the library that wants to be injected, as the driver does.
void initialize() {
  if (initialized.exchange(true)) return;
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  void* library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW);
  if (library == nullptr) return;
  if (auto* inject = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"))) inject();
}

void open_context(int index) {
  initialize();
  context_open[index] = true;
  is_detached = false;
}

CUresult refuse() { return CUDA_ERROR_NOT_SUPPORTED; }

// By name, the newest first: cuMemAlloc is cuMemAlloc_v2. PyTorch does not start where a function is missing that it
// never calls here, so what the card does not have refuses.
void* find_driver_function(const char* symbol) {
  Dl_info own{};
  dladdr(reinterpret_cast<void*>(&cuInit), &own);
  void* library = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  for (const char* version : {"_v4", "_v3", "_v2", ""}) {
    if (void* found = dlsym(library, (std::string(symbol) + version).c_str())) return found;
  }
  return reinterpret_cast<void*>(&refuse);
}

}  // namespace card

extern "C" {

CUresult cuInit(unsigned int) {
  card::initialize();
  return card::visible_devices() == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  DRIVER_CALL(cuDriverGetVersion, 100);
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = cudaGetErrorString(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_OF_THE_VIRTUAL_CARD";
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int, cuuint64_t,
                             CUdriverProcAddressQueryResult* result) {
  *function = card::find_driver_function(symbol);
  if (result != nullptr)
    *result = *function == nullptr ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
  return *function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

// Devices

CUresult cuDeviceGetCount(int* count) {
  *count = card::visible_devices();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int index) {
  *device = index;
  return index >= 0 && index < card::visible_devices() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  std::snprintf(name, static_cast<std::size_t>(bytes), "%s", card::device(device).facts->name.c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  std::memset(uuid, 0, sizeof *uuid);
  uuid->bytes[0] = 'V';
  uuid->bytes[15] = static_cast<char>(device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  *bytes = card::device(device).facts->memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* text, int bytes, CUdevice device) {
  card::bus_id(text, bytes, device);
  return CUDA_SUCCESS;
}

// The numbers of the driver's attributes are the runtime's.
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
  *value = card::device_attribute(device, which);
  return CUDA_SUCCESS;
}

// Contexts: each device has its primary one

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  if (flags != nullptr) *flags = 0;
  *active = card::context_open[device] ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  card::open_context(device);
  *context = card::context_of(device);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }

CUresult cuCtxGetCurrent(CUcontext* context) {
  const int index = card::current_device();
  *context = card::context_open[index] && !card::is_detached ? card::context_of(index) : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  card::is_detached = context == nullptr;
  if (context != nullptr) card::set_current_device(card::index_of(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  CUcontext before = nullptr;
  cuCtxGetCurrent(&before);
  card::pushed.push_back(before);
  return cuCtxSetCurrent(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  CUcontext current = nullptr;
  cuCtxGetCurrent(&current);
  if (context != nullptr) *context = current;
  if (card::pushed.empty() && current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const CUcontext before = card::pushed.empty() ? nullptr : card::pushed.back();
  if (!card::pushed.empty()) card::pushed.pop_back();
  return cuCtxSetCurrent(before);
}

CUresult cuCtxGetDevice(CUdevice* device) {
  *device = card::current_device();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(std::size_t* value, CUlimit which) {
  *value = which == CU_LIMIT_STACK_SIZE ? 1024 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit, std::size_t) { return CUDA_SUCCESS; }

CUresult cuCtxSynchronize() {
  DRIVER_CALL(cuCtxSynchronize);
  card::synchronize(card::device(card::current_device()));
  return CUDA_SUCCESS;
}

// Memory

CUresult cuMemAlloc_v2(CUdeviceptr* out, std::size_t bytes) {
  DRIVER_CALL(cuMemAlloc_v2, card::config().costs.allocation_ns);
  void* made = nullptr;
  card::synchronize(card::device(card::current_device()));
  const cudaError_t error = card::allocate(&made, bytes, card::Memory::kDevice, bytes);
  *out = reinterpret_cast<CUdeviceptr>(made);
  return call.ends(card::driver_error(error));
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  DRIVER_CALL(cuMemFree_v2, card::config().costs.allocation_ns);
  card::synchronize(card::device(card::current_device()));
  return call.ends(card::driver_error(card::release(reinterpret_cast<void*>(address))));
}

CUresult cuMemAllocHost_v2(void** out, std::size_t bytes) {
  return card::driver_error(card::allocate(out, bytes, card::Memory::kPinned, 0));
}

CUresult cuMemHostAlloc(void** out, std::size_t bytes, unsigned int) { return cuMemAllocHost_v2(out, bytes); }

CUresult cuMemFreeHost(void* address) { return card::driver_error(card::release(address)); }

CUresult cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total) {
  return card::driver_error(cudaMemGetInfo(free_bytes, total));
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  const void* begin = nullptr;
  const card::Allocation* found = card::find_allocation(reinterpret_cast<const void*>(address), &begin);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (base != nullptr) *base = reinterpret_cast<CUdeviceptr>(begin);
  if (bytes != nullptr) *bytes = found->bytes;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute which, CUdeviceptr address) {
  const card::Allocation* found = card::find_allocation(reinterpret_cast<const void*>(address));
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (which == CU_POINTER_ATTRIBUTE_CONTEXT) *static_cast<CUcontext*>(data) = card::context_of(found->device);
  if (which == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) *static_cast<CUdeviceptr*>(data) = address;
  if (which == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *static_cast<int*>(data) = found->device;
  if (which == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
    *static_cast<unsigned int*>(data) =
        found->kind == card::Memory::kPinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes) {
  return card::driver_error(cudaMemcpy(reinterpret_cast<void*>(to), from, bytes, cudaMemcpyHostToDevice));
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes) {
  return card::driver_error(cudaMemcpy(to, reinterpret_cast<const void*>(from), bytes, cudaMemcpyDeviceToHost));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return card::driver_error(
      cudaMemcpyAsync(reinterpret_cast<void*>(to), from, bytes, cudaMemcpyHostToDevice, card::handle(stream)));
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return card::driver_error(
      cudaMemcpyAsync(to, reinterpret_cast<const void*>(from), bytes, cudaMemcpyDeviceToHost, card::handle(stream)));
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return card::driver_error(
      cudaMemcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes, cudaMemcpyDeviceToDevice));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return card::driver_error(cudaMemcpyAsync(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes,
                                            cudaMemcpyDeviceToDevice, stream));
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  DRIVER_CALL(cuMemsetD8Async, card::config().costs.launch_ns);
  return call.ends(card::driver_error(
      card::set(reinterpret_cast<void*>(to), value, 1, count, card::stream_of(card::handle(stream)))));
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, std::size_t count, CUstream stream) {
  DRIVER_CALL(cuMemsetD32Async, card::config().costs.launch_ns);
  return call.ends(card::driver_error(
      card::set(reinterpret_cast<void*>(to), value, 4, count, card::stream_of(card::handle(stream)))));
}

// Streams and events are the runtime's

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  return card::driver_error(cudaStreamCreateWithFlags(stream, flags));
}

CUresult cuStreamDestroy_v2(CUstream stream) { return card::driver_error(cudaStreamDestroy(stream)); }

CUresult cuStreamSynchronize(CUstream stream) { return card::driver_error(cudaStreamSynchronize(stream)); }

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  return card::driver_error(cudaStreamWaitEvent(stream, event, flags));
}

CUresult cuStreamQuery(CUstream stream) {
  return cudaStreamQuery(stream) == cudaErrorNotReady ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  return card::driver_error(cudaEventCreateWithFlags(event, flags));
}

CUresult cuEventDestroy_v2(CUevent event) { return card::driver_error(cudaEventDestroy(event)); }

CUresult cuEventRecord(CUevent event, CUstream stream) { return card::driver_error(cudaEventRecord(event, stream)); }

CUresult cuEventSynchronize(CUevent event) { return card::driver_error(cudaEventSynchronize(event)); }

CUresult cuEventQuery(CUevent event) {
  return cudaEventQuery(event) == cudaErrorNotReady ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float* ms, CUevent start, CUevent end) {
  return card::driver_error(cudaEventElapsedTime(ms, start, end));
}

}  // extern "C"
