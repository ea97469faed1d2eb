// Kernels of modules, which programs load as PTX or cubins: Triton's, NVRTC's, and Curvescope's own.
#include <cuda.h>
#include <cupti_activity.h>
#include <cupti_driver_cbid.h>
#include <cupti_runtime_cbid.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "card.h"

namespace card {

namespace {

// What a module is loaded from does not matter: it has a kernel of every name. No two are the same.
template <typename Module>
void load(Module* module) {
  static std::atomic<std::uintptr_t> last{0x20};
  *module = reinterpret_cast<Module>(last += 0x10);
}

struct Launch {
  dim3 grid, block;
  std::size_t shared;
  cudaStream_t stream;
};

CUresult launch_function(CUfunction function, const Launch& how, void** arguments) {
  const cudaError_t error = launch(function, how.grid, how.block, arguments, how.shared, stream_of(how.stream));
  return error == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

}  // namespace card

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void*) {
  card::load(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoad(CUmodule* module, const char*) {
  card::load(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned int, CUjit_option*, void**) {
  card::load(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }

CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  *function = reinterpret_cast<CUfunction>(const_cast<void*>(card::new_kernel(name)));
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, std::size_t* bytes, CUmodule, const char*) {
  void* symbols = nullptr;
  cudaGetSymbolAddress(&symbols, nullptr);
  *address = reinterpret_cast<CUdeviceptr>(symbols);
  if (bytes != nullptr) *bytes = 64 << 10;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                        CUstream stream, void** arguments, void**) {
  DRIVER_CALL(cuLaunchKernel, card::config().costs.launch_ns);
  const card::Launch how{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream};
  return call.ends(card::launch_function(function, how, arguments));
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void**) {
  DRIVER_CALL(cuLaunchKernelEx, card::config().costs.launch_ns);
  const card::Launch how{{config->gridDimX, config->gridDimY, config->gridDimZ},
                         {config->blockDimX, config->blockDimY, config->blockDimZ},
                         config->sharedMemBytes,
                         config->hStream};
  return call.ends(card::launch_function(function, how, arguments));
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                   unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                   unsigned int shared, CUstream stream, void** arguments) {
  DRIVER_CALL(cuLaunchCooperativeKernel, card::config().costs.launch_ns);
  const card::Launch how{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream};
  return call.ends(card::launch_function(function, how, arguments));
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction) {
  *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : which == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : 0;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }

CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     std::size_t shared) {
  cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
  return CUDA_SUCCESS;
}

// Libraries, the driver's newer name for modules, whose kernels belong to no context.

CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned int, CUlibraryOption*,
                           void**, unsigned int) {
  card::load(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }

CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  *module = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char* name) {
  *kernel = reinterpret_cast<CUkernel>(const_cast<void*>(card::new_kernel(name)));
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute which, CUkernel kernel, CUdevice) {
  return cuFuncGetAttribute(value, which, reinterpret_cast<CUfunction>(kernel));
}

CUresult cuKernelSetAttribute(CUfunction_attribute, int, CUkernel, CUdevice) { return CUDA_SUCCESS; }

CUresult cuKernelSetCacheConfig(CUkernel, CUfunc_cache, CUdevice) { return CUDA_SUCCESS; }

// The runtime's name for a module.
cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void*, cudaJitOption*, void**, unsigned int,
                                cudaLibraryOption*, void**, unsigned int) {
  card::load(library);
  return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t) { return cudaSuccess; }

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t, const char* name) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(card::new_kernel(name)));
  return cudaSuccess;
}

}  // extern "C"
