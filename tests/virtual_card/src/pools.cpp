// Pools of memory, which the allocator by cudaMallocAsync asks for: each device has one, and it keeps nothing back.
#include <cuda_runtime_api.h>

#include "card.h"

extern "C" {

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int index) {
  *pool = reinterpret_cast<cudaMemPool_t>(&card::device(index));
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) {
  const bool is_size = which >= cudaMemPoolAttrReservedMemCurrent;
  if (is_size) *static_cast<cuuint64_t*>(value) = reinterpret_cast<const card::Device*>(pool)->used_bytes;
  if (!is_size) *static_cast<int*>(value) = 0;
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return cudaSuccess; }

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, std::size_t) { return cudaSuccess; }

cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void* value) {
  *static_cast<cuuint64_t*>(value) = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceSetGraphMemAttribute(int, cudaGraphMemAttributeType, void*) { return cudaSuccess; }

}  // extern "C"
