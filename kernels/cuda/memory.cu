// Memory bandwidth: the four STREAM operations (McCalpin, 1995), read only, write only and strided reads, in fp32.
//
// Launch: 256 threads, any grid: the loops step by the whole grid, so the blocks that run at once cover every size.
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
constexpr int kBlocksPerSm = 8;  // so many that hold 2048 threads; an SM that holds fewer threads has fewer blocks

// Makes kLoads loads of a thread before its first store. The arrays may be the same one, so the compiler would not move
// a load ahead of a store, and each thread would have one load in flight: too little for the DRAM of sm_100.
template <int kLoads, typename Load, typename Store>
__device__ inline void load_then_store(long long count4, int passes, Load load, Store store) {
  const int count = static_cast<int>(count4), step = gridDim.x * blockDim.x;  // in int, for want of registers
  for (int pass = 0; pass < passes; ++pass) {
    for (int first = static_cast<int>(first_in(pass)); first < count; first += kLoads * step) {
      decltype(load(first)) loaded[kLoads];
#pragma unroll
      for (int k = 0; k < kLoads; ++k)
        if (first + k * step < count) loaded[k] = load(first + k * step);
#pragma unroll
      for (int k = 0; k < kLoads; ++k)
        if (first + k * step < count) store(first + k * step, loaded[k]);
    }
  }
}

extern "C" {

__global__ __launch_bounds__(kBlockThreads, kBlocksPerSm) void memory_copy(const float4* a, float4* c, long long count4,
                                                                           int passes) {
  load_then_store<4>(count4, passes, [a](int i) { return a[i]; }, [c](int i, float4 v) { c[i] = v; });
}

__global__ __launch_bounds__(kBlockThreads, kBlocksPerSm) void memory_scale(const float4* c, float4* b, float scalar,
                                                                            long long count4, int passes) {
  load_then_store<4>(
      count4, passes, [c](int i) { return c[i]; },
      [b, scalar](int i, float4 v) { b[i] = float4{scalar * v.x, scalar * v.y, scalar * v.z, scalar * v.w}; });
}

struct TwoFloat4 {
  float4 v, w;
};

__global__ __launch_bounds__(kBlockThreads, kBlocksPerSm) void memory_add(const float4* a, const float4* b, float4* c,
                                                                          long long count4, int passes) {
  load_then_store<2>(
      count4, passes, [a, b](int i) { return TwoFloat4{a[i], b[i]}; },
      [c](int i, TwoFloat4 t) { c[i] = float4{t.v.x + t.w.x, t.v.y + t.w.y, t.v.z + t.w.z, t.v.w + t.w.w}; });
}

__global__ __launch_bounds__(kBlockThreads, kBlocksPerSm) void memory_triad(const float4* b, const float4* c, float4* a,
                                                                            float scalar, long long count4,
                                                                            int passes) {
  load_then_store<2>(
      count4, passes, [b, c](int i) { return TwoFloat4{b[i], c[i]}; },
      [a, scalar](int i, TwoFloat4 t) {
        a[i] = float4{t.v.x + scalar * t.w.x, t.v.y + scalar * t.w.y, t.v.z + scalar * t.w.z, t.v.w + scalar * t.w.w};
      });
}

__global__ __launch_bounds__(kBlockThreads) void memory_write(float4* a, float value, long long count4, int passes) {
  PASSES_OVER(i, count4) a[i] = float4{value, value, value, value};
}

// Sums per thread, of which those above `least` are stored. With the largest float nothing is written, yet the compiler
// keeps the reads. For a check, the smallest one stores all sums: with whole numbers they are exact.
__global__ __launch_bounds__(kBlockThreads) void memory_read(const float4* a, float* sums, float least,
                                                             long long count4, int passes) {
  float sum = 0.0f;
  PASSES_OVER(i, count4) {
    const float4 v = a[i];
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum > least) sums[blockIdx.x * kBlockThreads + threadIdx.x] = sum;
}

// Reads one float of every `stride`; `count` counts the floats that are read.
__global__ __launch_bounds__(kBlockThreads) void memory_read_strided(const float* a, float* sums, float least,
                                                                     long long stride, long long count, int passes) {
  float sum = 0.0f;
  PASSES_OVER(i, count) sum += a[i * stride];
  if (sum > least) sums[blockIdx.x * kBlockThreads + threadIdx.x] = sum;
}

}  // extern "C"
