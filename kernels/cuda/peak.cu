// Arithmetic peaks: chains of dependent FMAs, enough of them in flight to hide their latency.
//
// Launch: 256 threads, as many blocks as run at once. Every kernel does, per round, kLaneSteps or kTensorSteps steps on
// each of its kChains chains, and writes one float per thread: the sum over its chains. With a = b = 1 every FMA (or
// every product of a matrix instruction) adds 1, so that sum says how many were done: check it for one round, then
// time many. kernels/catalog.py holds the FLOPs per thread and round. What one architecture lacks is not in its cubin:
//
//   peak_fp32, peak_fp64          every architecture, one FMA per instruction
//   peak_fp16x2                   sm_53 on, two FMAs per instruction; sm_61 has it at 1/64 of the rate of fp32
//   peak_bf16x2                   sm_80 on; sm_80 has it at half the rate of fp16x2
//   peak_fp16_tensor              sm_70 on: mma.sync with fp32 sums
//   peak_int8_tensor              sm_75 on, with int32 sums: four numbers in a register
//   peak_bf16_tensor, _tf32_, _fp64_tensor   sm_80 on
//
// On sm_90 mma.sync stays below the peak of the tensor cores, which only wgmma reaches (sm_90a/peak_wgmma.cu): Luo et
// al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture", arXiv:2402.13499. On sm_100 only tcgen05 does.
// GeForce parts halve the rate of fp16 products with fp32 sums.
constexpr int kBlockThreads = 256;
constexpr int kChains = 8;
// Lanes take one instruction a clock, so those of the loop itself count: under 1 % of 512, which are 8 KB of code.
// A matrix instruction takes several clocks, in which the others are issued.
constexpr int kLaneSteps = 64;
constexpr int kTensorSteps = 16;

template <typename Real>
__device__ Real fused(Real x, Real a, Real b);
template <>
__device__ float fused(float x, float a, float b) {
  return fmaf(x, a, b);
}
template <>
__device__ double fused(double x, double a, double b) {
  return fma(x, a, b);
}

template <typename Real>
__device__ void chain_fmas(float* sums, Real a, Real b, int rounds) {
  Real x[kChains];
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) x[chain] = chain;  // different, or they would be merged into one
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int step = 0; step < kLaneSteps; ++step) {
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) x[chain] = fused(x[chain], a, b);
    }
  }
  float sum = 0.0f;
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) sum += static_cast<float>(x[chain]) - chain;
  sums[blockIdx.x * kBlockThreads + threadIdx.x] = sum;
}

extern "C" __global__ __launch_bounds__(kBlockThreads) void peak_fp32(float* sums, float a, float b, int rounds) {
  chain_fmas<float>(sums, a, b, rounds);
}

extern "C" __global__ __launch_bounds__(kBlockThreads) void peak_fp64(float* sums, double a, double b, int rounds) {
  chain_fmas<double>(sums, a, b, rounds);
}

// The packed formats and the matrix instructions are PTX: their C++ types need CUDA's headers, PTX needs nothing.
// A register holds two numbers; `kOne` is the bit pattern of 1 in the upper and lower half.
#if __CUDA_ARCH__ >= 530
#define PACKED_CHAINS(name, instruction, to_float)                                                                    \
  extern "C" __global__ __launch_bounds__(kBlockThreads) void name(float* sums, unsigned a, unsigned b, int rounds) { \
    unsigned x[kChains];                                                                                              \
    a ^= threadIdx.y, b ^= threadIdx.y; /* by 0, else every round would load the constants again */                   \
    _Pragma("unroll") for (int chain = 0; chain < kChains; ++chain) x[chain] = chain << 16;                           \
    for (int round = 0; round < rounds; ++round) {                                                                    \
      _Pragma("unroll") for (int step = 0; step < kLaneSteps; ++step) {                                               \
        _Pragma("unroll") for (int chain = 0; chain < kChains; ++chain) {                                             \
          asm volatile(instruction " %0, %0, %1, %2;" : "+r"(x[chain]) : "r"(a), "r"(b));                             \
        }                                                                                                             \
      }                                                                                                               \
    }                                                                                                                 \
    float sum = 0.0f;                                                                                                 \
    _Pragma("unroll") for (int chain = 0; chain < kChains; ++chain) {                                                 \
      sum += to_float(static_cast<unsigned short>(x[chain])) + to_float(static_cast<unsigned short>(x[chain] >> 16)); \
    }                                                                                                                 \
    sums[blockIdx.x * kBlockThreads + threadIdx.x] = sum;                                                             \
  }

__device__ float half_to_float(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

PACKED_CHAINS(peak_fp16x2, "fma.rn.f16x2", half_to_float)
#endif

#if __CUDA_ARCH__ >= 800
__device__ float bfloat_to_float(unsigned short bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }

PACKED_CHAINS(peak_bf16x2, "fma.rn.bf16x2", bfloat_to_float)
#endif

// Matrix instructions: a warp multiplies fragments that are spread over its registers. All elements of the left
// fragment are `a`, all of the right one `b`, so it does not matter which thread holds which: with a = b = 1 every
// element of the sum grows by the depth of the instruction.
#if __CUDA_ARCH__ >= 700
template <int kSums, typename Sum, typename Multiply>
__device__ void chain_products(float* sums, int rounds, Multiply multiply) {
  Sum x[kChains][kSums];
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) x[chain][i] = 0;
  }
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int step = 0; step < kTensorSteps; ++step) {
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) multiply(x[chain]);
    }
  }
  float sum = 0.0f;
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum += static_cast<float>(x[chain][i]);
  }
  sums[blockIdx.x * kBlockThreads + threadIdx.x] = sum;
}

// Two halves are packed in `a` and in `b`. One step is 16 x 8 x 16 (4096 FLOPs per warp) on every architecture:
// sm_70 does it as two 4-fold 8 x 8 x 4, sm_75 as two 16 x 8 x 8. sm_70's sums are 8 registers, later ones' 4.
extern "C" __global__ __launch_bounds__(kBlockThreads) void peak_fp16_tensor(float* sums, unsigned a, unsigned b,
                                                                             int rounds) {
#if __CUDA_ARCH__ >= 800
  chain_products<4, float>(sums, rounds, [&](float (&x)[4]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
        : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
        : "r"(a), "r"(b));
  });
#elif __CUDA_ARCH__ >= 750
  chain_products<4, float>(sums, rounds, [&](float (&x)[4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4}, {%5}, {%0,%1,%2,%3};"
                   : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
                   : "r"(a), "r"(b));
    }
  });
#else
  chain_products<8, float>(sums, rounds, [&](float (&x)[8]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      asm volatile(
          "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%8}, {%9,%9}, "
          "{%0,%1,%2,%3,%4,%5,%6,%7};"
          : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]), "+f"(x[4]), "+f"(x[5]), "+f"(x[6]), "+f"(x[7])
          : "r"(a), "r"(b));
    }
  });
#endif
}
#endif

#if __CUDA_ARCH__ >= 750
// One step is 16 x 8 x 32 (8192 operations per warp): sm_75 does it as four 8 x 8 x 16, sm_80 and later at once.
extern "C" __global__ __launch_bounds__(kBlockThreads) void peak_int8_tensor(float* sums, unsigned a, unsigned b,
                                                                             int rounds) {
#if __CUDA_ARCH__ >= 800
  chain_products<4, int>(sums, rounds, [&](int (&x)[4]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
                 : "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3])
                 : "r"(a), "r"(b));
  });
#else
  chain_products<2, int>(sums, rounds, [&](int (&x)[2]) {
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                   : "+r"(x[0]), "+r"(x[1])
                   : "r"(a), "r"(b));
    }
  });
#endif
}
#endif

#if __CUDA_ARCH__ >= 800
// One step is 16 x 8 x 16: 4096 FLOPs per warp.
extern "C" __global__ __launch_bounds__(kBlockThreads) void peak_bf16_tensor(float* sums, unsigned a, unsigned b,
                                                                             int rounds) {
  chain_products<4, float>(sums, rounds, [&](float (&x)[4]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
        : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
        : "r"(a), "r"(b));
  });
}

// One step is 16 x 8 x 8: 2048 FLOPs per warp. A tf32 number is an fp32 whose lower 13 bits do not count.
extern "C" __global__ __launch_bounds__(kBlockThreads) void peak_tf32_tensor(float* sums, float a, float b,
                                                                             int rounds) {
  const unsigned left = __float_as_uint(a), right = __float_as_uint(b);
  chain_products<4, float>(sums, rounds, [&](float (&x)[4]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
        : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
        : "r"(left), "r"(right));
  });
}

// One step is 8 x 8 x 4: 512 FLOPs per warp.
extern "C" __global__ __launch_bounds__(kBlockThreads) void peak_fp64_tensor(float* sums, double a, double b,
                                                                             int rounds) {
  chain_products<2, double>(sums, rounds, [&](double (&x)[2]) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(x[0]), "+d"(x[1])
                 : "d"(a), "d"(b));
  });
}
#endif
