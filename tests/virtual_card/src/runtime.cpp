// libcudart: devices, memory, streams and events. Launches are in launch.cpp, graphs in graphs.cpp.
#include <cuda_runtime_api.h>
#include <cupti_activity.h>
#include <cupti_runtime_cbid.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "card.h"

namespace card {

namespace {

thread_local cudaError_t last_error = cudaSuccess;

// What the runtime remembers of a failed call.
cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

Event* of(cudaEvent_t event) { return reinterpret_cast<Event*>(event); }

void fill(cudaDeviceProp* p, const DeviceFacts& facts, int index) {
  std::memset(p, 0, sizeof *p);
  std::snprintf(p->name, sizeof p->name, "%s", facts.name.c_str());
  p->uuid.bytes[0] = 'V';
  p->uuid.bytes[15] = static_cast<char>(index);
  p->major = facts.major;
  p->minor = facts.minor;
  p->totalGlobalMem = facts.memory_bytes;
  p->multiProcessorCount = facts.sm_count;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = facts.warps_per_sm * 32;
  p->maxBlocksPerMultiProcessor = facts.blocks_per_sm;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = facts.shared_per_block;
  p->sharedMemPerMultiprocessor = facts.shared_per_sm;
  p->regsPerBlock = 65'536;
  p->regsPerMultiprocessor = facts.registers_per_sm;
  p->l2CacheSize = static_cast<int>(facts.l2_bytes);
  p->totalConstMem = 64 << 10;
  p->maxGridSize[0] = 2'147'483'647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65'535;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->textureAlignment = 512;
  p->memoryBusWidth = memory_bus_bits(facts);
  p->concurrentKernels = p->unifiedAddressing = p->managedMemory = p->asyncEngineCount = 1;
  p->streamPrioritiesSupported = p->canMapHostMemory = p->hostRegisterSupported = 1;
  p->pciBusID = index + 1;
}

int attribute(const DeviceFacts& facts, int index, cudaDeviceAttr which) {
  switch (which) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      return 1024;
    case cudaDevAttrMaxBlockDimZ:
      return 64;
    case cudaDevAttrMaxGridDimX:
      return 2'147'483'647;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return 65'535;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 48 << 10;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return static_cast<int>(facts.shared_per_block);
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return static_cast<int>(facts.shared_per_sm);
    case cudaDevAttrTotalConstantMemory:
      return 64 << 10;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMaxRegistersPerBlock:
      return 65'536;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return facts.registers_per_sm;
    case cudaDevAttrClockRate:
      return static_cast<int>(facts.clock_hz / 1000);
    case cudaDevAttrMemoryClockRate:
      return memory_clock_khz(facts);
    case cudaDevAttrGlobalMemoryBusWidth:
      return memory_bus_bits(facts);
    case cudaDevAttrMultiProcessorCount:
      return facts.sm_count;
    case cudaDevAttrL2CacheSize:
      return static_cast<int>(facts.l2_bytes);
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return facts.warps_per_sm * 32;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return facts.blocks_per_sm;
    case cudaDevAttrComputeCapabilityMajor:
      return facts.major;
    case cudaDevAttrComputeCapabilityMinor:
      return facts.minor;
    case cudaDevAttrPciBusId:
      return index + 1;
    case cudaDevAttrTextureAlignment:
      return 512;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrAsyncEngineCount:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrHostRegisterSupported:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

int device_attribute(int index, int which) {
  return attribute(*device(index).facts, index, static_cast<cudaDeviceAttr>(which));
}

void bus_id(char* text, int bytes, int index) {
  std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02X:00.0", index + 1);
}

}  // namespace card

using card::remember;

extern "C" {

// Errors

cudaError_t cudaGetLastError() {
  const cudaError_t error = card::last_error;
  card::last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return card::last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  if (error == cudaSuccess) return "cudaSuccess";
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOfTheVirtualCard";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorNotSupported:
      return "the virtual card does not have this function";
    default:
      return "an error of the virtual card";
  }
}

// Devices

cudaError_t cudaGetDeviceCount(int* count) {
  CALL(cudaGetDeviceCount_v3020);
  *count = card::visible_devices();
  return call.ends(remember(*count == 0 ? cudaErrorNoDevice : cudaSuccess));
}

cudaError_t cudaGetDevice(int* index) {
  CALL(cudaGetDevice_v3020, 100);
  *index = card::current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int index) {
  CALL(cudaSetDevice_v3020, 200);
  if (index < 0 || index >= card::visible_devices()) return call.ends(remember(cudaErrorInvalidDevice));
  card::set_current_device(index);
  card::open_context(index);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  CALL(cudaGetDeviceProperties_v12000);
  if (index < 0 || index >= card::visible_devices()) return call.ends(remember(cudaErrorInvalidDevice));
  card::fill(properties, *card::device(index).facts, index);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int index) {
  CALL(cudaDeviceGetAttribute_v5000, 100);
  *value = card::device_attribute(index, which);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned int) { return remember(cudaErrorPeerAccessUnsupported); }

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int index) {
  card::bus_id(text, bytes, index);
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  CALL(cudaDeviceSynchronize_v3020);
  const card::Ns start = card::now();
  card::synchronize(card::device(card::current_device()));
  card::record_synchronization(nullptr, start);
  return cudaSuccess;
}

cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

// Memory

cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  CALL(cudaMalloc_v3020, card::config().costs.allocation_ns);
  card::open_context(card::current_device());
  card::synchronize(card::device(card::current_device()));
  return call.ends(remember(card::allocate(out, bytes, card::Memory::kDevice, bytes)));
}

cudaError_t cudaFree(void* address) {
  CALL(cudaFree_v3020, address == nullptr ? 0 : card::config().costs.allocation_ns);
  card::open_context(card::current_device());
  card::synchronize(card::device(card::current_device()));
  return call.ends(remember(card::release(address)));
}

cudaError_t cudaMallocAsync(void** out, std::size_t bytes, cudaStream_t) {
  CALL(cudaMallocAsync_v11020);
  return call.ends(remember(card::allocate(out, bytes, card::Memory::kDevice, bytes)));
}

cudaError_t cudaFreeAsync(void* address, cudaStream_t) {
  CALL(cudaFreeAsync_v11020);
  return call.ends(remember(card::release(address)));
}

cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned int) {
  CALL(cudaHostAlloc_v3020, card::config().costs.allocation_ns);
  return call.ends(remember(card::allocate(out, bytes, card::Memory::kPinned, 0)));
}

cudaError_t cudaMallocHost(void** out, std::size_t bytes) { return cudaHostAlloc(out, bytes, 0); }

cudaError_t cudaFreeHost(void* address) {
  CALL(cudaFreeHost_v3020, card::config().costs.allocation_ns);
  return call.ends(remember(card::release(address)));
}

cudaError_t cudaHostRegister(void* address, std::size_t bytes, unsigned int) {
  CALL(cudaHostRegister_v4000, card::config().costs.allocation_ns);
  card::note_memory(address, {bytes, card::current_device(), card::Memory::kPinned});
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
  CALL(cudaHostUnregister_v4000, card::config().costs.allocation_ns);
  card::forget_memory(address, 1);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
  CALL(cudaMemGetInfo_v3020);
  const card::Device& on = card::device(card::current_device());
  *total = on.facts->memory_bytes;
  *free_bytes = *total - on.used_bytes;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  *attributes = cudaPointerAttributes{};
  const card::Allocation* found = card::find_allocation(address);
  attributes->type = cudaMemoryTypeUnregistered;
  if (found == nullptr) return cudaSuccess;
  attributes->type = found->kind == card::Memory::kPinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = found->device;
  attributes->devicePointer = const_cast<void*>(address);
  if (found->kind == card::Memory::kPinned) attributes->hostPointer = const_cast<void*>(address);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  CALL(cudaMemcpy_v3020, card::config().costs.launch_ns);
  return call.ends(remember(card::copy(to, from, bytes, kind, card::stream_of(nullptr), true)));
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  CALL(cudaMemcpyAsync_v3020, card::config().costs.launch_ns);
  return call.ends(remember(card::copy(to, from, bytes, kind, card::stream_of(stream), false)));
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, cudaStream_t stream) {
  CALL(cudaMemcpyPeerAsync_v4000, card::config().costs.launch_ns);
  return call.ends(remember(card::copy(to, from, bytes, cudaMemcpyDeviceToDevice, card::stream_of(stream), false)));
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  CALL(cudaMemset_v3020, card::config().costs.launch_ns);
  return call.ends(remember(card::set(to, static_cast<unsigned int>(value), 1, bytes, card::stream_of(nullptr))));
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  CALL(cudaMemsetAsync_v3020, card::config().costs.launch_ns);
  return call.ends(remember(card::set(to, static_cast<unsigned int>(value), 1, bytes, card::stream_of(stream))));
}

cudaError_t cudaGetSymbolAddress(void** out, const void*) {
  static void* symbols = nullptr;  // one place for all: no kernel reads it
  LOCK();
  if (symbols == nullptr) card::allocate(&symbols, 64 << 10, card::Memory::kDevice, 0);
  *out = symbols;
  return cudaSuccess;
}

cudaError_t cudaMemcpyToSymbol(const void*, const void*, std::size_t, std::size_t, cudaMemcpyKind) {
  return cudaSuccess;
}

// Streams

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  CALL(cudaStreamCreateWithPriority_v5050);
  const bool blocking = (flags & cudaStreamNonBlocking) == 0;
  *stream = reinterpret_cast<cudaStream_t>(card::new_stream(card::device(card::current_device()), blocking, priority));
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

// Its records may still be needed, and a program makes few.
cudaError_t cudaStreamDestroy(cudaStream_t) {
  CALL(cudaStreamDestroy_v5050);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  CALL(cudaStreamSynchronize_v3020);
  const card::Ns start = card::now();
  const card::Stream* of = card::stream_of(stream);
  if (of->capture != nullptr) return call.ends(remember(cudaErrorStreamCaptureUnsupported));
  card::wait_for_work(of->ready);
  card::record_synchronization(of, start);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  CALL(cudaStreamQuery_v3020);
  return call.ends(card::now() < card::stream_of(stream)->ready ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = card::stream_of(stream)->priority;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  CALL(cudaStreamWaitEvent_v3020);
  card::wait_event(card::stream_of(stream), *card::of(event));
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned int) {
  CALL(cudaStreamAddCallback_v5000);
  card::wait_until(card::stream_of(stream)->ready);
  callback(stream, cudaSuccess, data);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  CALL(cudaLaunchHostFunc_v10000);
  card::wait_until(card::stream_of(stream)->ready);
  function(data);
  return cudaSuccess;
}

// Events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  CALL(cudaEventCreateWithFlags_v3020, 300);
  card::open_context(card::current_device());
  auto* made = new card::Event;
  made->timed = (flags & cudaEventDisableTiming) == 0;
  *event = reinterpret_cast<cudaEvent_t>(made);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  CALL(cudaEventDestroy_v3020, 300);
  delete card::of(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  CALL(cudaEventRecord_v3020);
  card::record_event(card::stream_of(stream), card::of(event));
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  CALL(cudaEventQuery_v3020, 300);
  return call.ends(card::now() < card::of(event)->at ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  CALL(cudaEventSynchronize_v3020);
  card::wait_for_work(card::of(event)->at);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  CALL(cudaEventElapsedTime_v3020, 300);
  const card::Event &from = *card::of(start), &to = *card::of(end);
  if (!from.timed || !to.timed || !from.recorded || !to.recorded)
    return call.ends(remember(cudaErrorInvalidResourceHandle));
  if (card::now() < to.at) return call.ends(cudaErrorNotReady);
  const auto resolution = static_cast<card::Ns>(card::config().costs.event_resolution_ns);
  *ms = static_cast<float>(static_cast<double>((to.at - from.at) / resolution * resolution) / 1e6);
  return cudaSuccess;
}

// Functions of the driver by their names

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = card::find_driver_function(symbol);
  if (result != nullptr)
    *result = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

}  // extern "C"
