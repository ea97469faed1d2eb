// The driver's memory by parts: reserved addresses, to which physical memory is mapped. PyTorch's allocator uses it for
// expandable segments.
#include <cuda.h>
#include <cupti_activity.h>
#include <cupti_driver_cbid.h>
#include <sys/mman.h>

#include "card.h"

namespace card {

namespace {

constexpr std::size_t kGranularity = 2 << 20;

struct Physical {
  std::size_t bytes;
  int device;
};

Physical* of(CUmemGenericAllocationHandle handle) { return reinterpret_cast<Physical*>(handle); }

}  // namespace

}  // namespace card

extern "C" {

CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = card::kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* out, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
  DRIVER_CALL(cuMemAddressReserve);
  void* made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *out = reinterpret_cast<CUdeviceptr>(made);
  return call.ends(made == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
}

CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  DRIVER_CALL(cuMemAddressFree);
  munmap(reinterpret_cast<void*>(address), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* out, std::size_t bytes, const CUmemAllocationProp* how,
                     unsigned long long) {
  DRIVER_CALL(cuMemCreate, card::config().costs.allocation_ns);
  LOCK();
  card::Device& on = card::device(how->location.id);
  if (bytes > on.facts->memory_bytes - on.used_bytes) return call.ends(CUDA_ERROR_OUT_OF_MEMORY);
  on.used_bytes += bytes;
  *out = reinterpret_cast<CUmemGenericAllocationHandle>(new card::Physical{bytes, on.index});
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  DRIVER_CALL(cuMemRelease, card::config().costs.allocation_ns);
  LOCK();
  card::Physical* released = card::of(handle);
  card::device(released->device).used_bytes -= released->bytes;
  delete released;
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
  DRIVER_CALL(cuMemMap);
  card::note_memory(reinterpret_cast<void*>(address), {bytes, card::of(handle)->device, card::Memory::kDevice});
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  DRIVER_CALL(cuMemUnmap);
  card::synchronize(card::device(card::current_device()));
  card::forget_memory(reinterpret_cast<void*>(address), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) { return CUDA_SUCCESS; }

}  // extern "C"
