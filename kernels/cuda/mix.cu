// Arithmetic between memory, as mixbench has it: each float is read, takes `fmas` multiply-adds x = x a + b one after
// the other, and is written. FLOPs per byte: fmas / 4.
//
// Launch: 256 threads, any grid: the loop steps by the whole grid. `count4` counts float4. A thread has four of them in
// registers, so sixteen chains are in flight, and four loads before the first store.
constexpr int kBlockThreads = 256;
constexpr int kVectors = 4;

extern "C" __global__ __launch_bounds__(kBlockThreads) void mix_fp32(const float4* x, float4* y, float a, float b,
                                                                     int fmas, long long count4) {
  const long long step = static_cast<long long>(gridDim.x) * kBlockThreads;
  for (long long first = blockIdx.x * static_cast<long long>(kBlockThreads) + threadIdx.x; first < count4;
       first += kVectors * step) {
    float4 v[kVectors] = {};
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (first + k * step < count4) v[k] = x[first + k * step];
#pragma unroll 16
    for (int i = 0; i < fmas; ++i) {
#pragma unroll
      for (int k = 0; k < kVectors; ++k)
        v[k] = float4{fmaf(v[k].x, a, b), fmaf(v[k].y, a, b), fmaf(v[k].z, a, b), fmaf(v[k].w, a, b)};
    }
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (first + k * step < count4) y[first + k * step] = v[k];
  }
}
