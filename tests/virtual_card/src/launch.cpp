// Kernels: their registration by the programs that the compiler of CUDA made, their names, and their launches.
#include <cupti_activity.h>
#include <cupti_runtime_cbid.h>

#include <string_view>
#include <unordered_map>

#include "../../native/fake_cupti_emit.h"
#include "attention.h"

namespace card {

namespace {

struct Names {
  std::mutex mutex;
  std::unordered_map<const void*, const char*> of;
};

Names& names() {
  static Names& made = *new Names;
  return made;
}

}  // namespace

const char* kernel_name(const void* handle) {
  const std::lock_guard<std::mutex> lock(names().mutex);
  const auto found = names().of.find(handle);
  return found == names().of.end() ? "unnamed_kernel" : found->second;
}

const void* new_kernel(const std::string& name) {
  const char* kept = keep(name.c_str());
  const std::lock_guard<std::mutex> lock(names().mutex);
  names().of[kept] = kept;
  return kept;
}

cudaError_t launch(const void* handle, dim3 grid, dim3 block, void** arguments, std::size_t shared, Stream* stream) {
  if (double(block.x) * block.y * block.z > 1024) return cudaErrorInvalidConfiguration;
  Work work;
  work.name = kernel_name(handle);
  work.grid = grid;
  work.block = block;
  work.dynamic_shared = shared;
  read_arguments(work, arguments);
  if (arguments != nullptr) read_attention(*stream->device->facts, &work, arguments);
  submit(stream, work);
  return cudaSuccess;
}

void launch_from_library(const std::function<void()>& submits, double host_ns) {
  CALL(cudaLaunchKernel_v7000, host_ns > 0 ? host_ns : config().costs.launch_ns);
  submits();
}

}  // namespace card

namespace {

// What <<<grid, block, shared, stream>>> pushes and the function that stands for the kernel pops.
struct Configuration {
  dim3 grid, block;
  std::size_t shared;
  cudaStream_t stream;
};

thread_local std::vector<Configuration> configurations;
void* const kFatBinary = reinterpret_cast<void*>(0x10);

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) { return const_cast<void**>(&kFatBinary); }

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void**, const char* host_function, char*, const char* name, int, void*, void*, void*, void*,
                            int*) {
  card::Names& all = card::names();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.of[host_function] = name;
}

void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

char __cudaInitModule(void**) { return 0; }

unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  if (configurations.empty()) return cudaErrorMissingConfiguration;
  const Configuration& last = configurations.back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  configurations.pop_back();
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host_function));
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                             cudaStream_t stream) {
  CALL(cudaLaunchKernel_v7000, card::config().costs.launch_ns);
  return call.ends(card::launch(function, grid, block, arguments, shared, card::stream_of(stream)));
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                               cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  CALL(cudaLaunchKernelExC_v11060, card::config().costs.launch_ns);
  return call.ends(card::launch(function, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes,
                                card::stream_of(config->stream)));
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                        std::size_t shared, cudaStream_t stream) {
  CALL(cudaLaunchCooperativeKernel_v9000, card::config().costs.launch_ns);
  return call.ends(card::launch(function, grid, block, arguments, shared, card::stream_of(stream)));
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  const card::DeviceFacts& on = *card::device(card::current_device()).facts;
  *attributes = cudaFuncAttributes{};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = on.major * 10 + on.minor;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) { return cudaSuccess; }

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads,
                                                                   std::size_t shared, unsigned int) {
  card::Work work;
  work.block.x = static_cast<unsigned int>(threads);
  work.dynamic_shared = shared;
  *blocks = card::resident_blocks(*card::device(card::current_device()).facts, work);
  return cudaSuccess;
}

}  // extern "C"
