// Memory bandwidth: the four STREAM operations (McCalpin, 1995), read only, write only and strided reads, in fp32.
//
// Launch: 256 threads, any grid: the loops step by the whole grid, so a grid of a few blocks per SM covers every size.
// `count4` counts float4: 16 bytes per thread and access, the widest the hardware has. Arrays are aligned to 16 bytes.
// Compulsory bytes per float: copy 8, scale 8, add 12, triad 12, read 4, write 4; strided: 4 of use, but DRAM gives
// whole 32-byte sectors, which is the point of it.
//
// Each kernel makes `passes` passes over its arrays, so that a small working set is timed and not the launch. In every
// pass a block takes the share that the block after it had in the pass before: that block is on another SM, whose L1 a
// load does not find, so what is repeated comes from L2.
#define PASSES_OVER(i, count)               \
  for (int pass = 0; pass < passes; ++pass) \
  _Pragma("unroll 4") for (long long i = first_in(pass); i < count; i += static_cast<long long>(gridDim.x) * blockDim.x)

__device__ inline long long first_in(int pass) {
  return (blockIdx.x + pass) % gridDim.x * static_cast<long long>(blockDim.x) + threadIdx.x;
}

constexpr int kBlockThreads = 256;

extern "C" {

__global__ __launch_bounds__(kBlockThreads) void memory_copy(const float4* a, float4* c, long long count4, int passes) {
  PASSES_OVER(i, count4) c[i] = a[i];
}

__global__ __launch_bounds__(kBlockThreads) void memory_scale(const float4* c, float4* b, float scalar,
                                                              long long count4, int passes) {
  PASSES_OVER(i, count4) {
    const float4 v = c[i];
    b[i] = float4{scalar * v.x, scalar * v.y, scalar * v.z, scalar * v.w};
  }
}

__global__ __launch_bounds__(kBlockThreads) void memory_add(const float4* a, const float4* b, float4* c,
                                                            long long count4, int passes) {
  PASSES_OVER(i, count4) {
    const float4 v = a[i], w = b[i];
    c[i] = float4{v.x + w.x, v.y + w.y, v.z + w.z, v.w + w.w};
  }
}

__global__ __launch_bounds__(kBlockThreads) void memory_triad(const float4* b, const float4* c, float4* a, float scalar,
                                                              long long count4, int passes) {
  PASSES_OVER(i, count4) {
    const float4 v = b[i], w = c[i];
    a[i] = float4{v.x + scalar * w.x, v.y + scalar * w.y, v.z + scalar * w.z, v.w + scalar * w.w};
  }
}

__global__ __launch_bounds__(kBlockThreads) void memory_write(float4* a, float value, long long count4, int passes) {
  PASSES_OVER(i, count4) a[i] = float4{value, value, value, value};
}

// Sums per thread; stored only if a sum is `unlikely`, so that nothing is written, yet the compiler keeps the reads.
// For a check, pass the sum that one thread must reach: with equal inputs it is exact.
__global__ __launch_bounds__(kBlockThreads) void memory_read(const float4* a, float* seen, float unlikely,
                                                             long long count4, int passes) {
  float sum = 0.0f;
  PASSES_OVER(i, count4) {
    const float4 v = a[i];
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == unlikely) *seen = sum;
}

// Reads one float of every `stride`; `count` counts the floats that are read.
__global__ __launch_bounds__(kBlockThreads) void memory_read_strided(const float* a, float* seen, float unlikely,
                                                                     long long stride, long long count, int passes) {
  float sum = 0.0f;
  PASSES_OVER(i, count) sum += a[i * stride];
  if (sum == unlikely) *seen = sum;
}

}  // extern "C"
