// NVIDIA's occupancy calculator, a header of the CUDA runtime's wheel, on every launch of a grid. It is given the
// limits of an SM and answers with blocks per SM; the macros THREADS, REGISTERS and SHARED list the grid.
#include <cuda_occupancy.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int count, char** values) {
  std::vector<int> number;
  for (int i = 1; i < count; ++i) number.push_back(std::atoi(values[i]));
  cudaOccDeviceProp sm;
  sm.computeMajor = number[0] / 10;
  sm.computeMinor = number[0] % 10;
  sm.maxThreadsPerBlock = 1024;
  sm.maxThreadsPerMultiprocessor = number[1] * 32;
  sm.regsPerBlock = 65536;
  sm.regsPerMultiprocessor = number[2];
  sm.warpSize = 32;
  sm.sharedMemPerBlock = 49152;
  sm.sharedMemPerMultiprocessor = number[3];
  sm.sharedMemPerBlockOptin = number[4];
  sm.reservedSharedMemPerBlock = number[5];
  sm.numSms = 1;
  cudaOccDeviceState state;
  state.cacheConfig = CACHE_PREFER_SHARED;
  state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
  for (int threads : {THREADS}) {
    for (int registers : {REGISTERS}) {
      for (int shared : {SHARED}) {
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024;
        kernel.numRegs = registers;
        kernel.sharedSizeBytes = 0;
        kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = shared;
        cudaOccResult result;
        if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &sm, &kernel, &state, threads, shared)) return 1;
        std::printf("%d ", result.activeBlocksPerMultiprocessor);
      }
    }
  }
}
