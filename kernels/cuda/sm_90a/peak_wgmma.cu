// Arithmetic peaks of Hopper's tensor cores, which only wgmma reaches (Luo et al., arXiv:2402.13499): a warpgroup of
// 128 threads multiplies 64 x K by K x 128, the left operand in registers, the right one in shared memory.
//
// Built for sm_90a alone, by NVRTC 12.0 or later: the instruction does not run on later architectures. Compiles with
// CUDA 13.0; bf16 ran on an H100. Launch, arguments and check as in ../peak.cu: all elements are 1, so it does not
// matter which thread or address holds which, and every element of the sum grows by K in each step. One step does 2 x
// 64 x 128 x K operations per warpgroup; K is 32 bytes: 16 of fp16 and bf16, 8 of tf32, 32 of fp8 (E4M3) and int8.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)
constexpr int kBlockThreads = 256;
constexpr int kSteps = 128;
constexpr int kSums = 64;  // of a thread: 64 x 128 results over 128 threads
constexpr int kColumns = 128;
constexpr int kDepthBytes = 32;

// Where wgmma finds the right operand (PTX ISA, "Matrix Descriptor Format"): 8 columns x 16 bytes are contiguous, the
// second half of the depth follows after 128 bytes, the next 8 columns after 256; no swizzle.
__device__ unsigned long long descriptor(const void* tile) {
  const unsigned long long address = static_cast<unsigned>(__cvta_generic_to_shared(tile));
  return (address & 0x3FFFF) >> 4 | (128ull >> 4) << 16 | (256ull >> 4) << 32;
}

template <typename Sum, typename Multiply>
__device__ void chain_products(float* sums, unsigned b, int rounds, Multiply multiply) {
  __shared__ __align__(128) unsigned tile[kColumns * kDepthBytes / 4];
  for (int i = threadIdx.x; i < kColumns * kDepthBytes / 4; i += kBlockThreads) tile[i] = b;
  asm volatile("fence.proxy.async;" ::: "memory");  // the tensor cores read what ordinary stores have written
  __syncthreads();
  const unsigned long long right = descriptor(tile);
  Sum x[kSums];
#pragma unroll
  for (int i = 0; i < kSums; ++i) x[i] = 0;
  for (int round = 0; round < rounds; ++round) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll 16
    for (int step = 0; step < kSteps; ++step) multiply(x, right);
    asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kSums; ++i) sum += static_cast<float>(x[i]);
  sums[blockIdx.x * kBlockThreads + threadIdx.x] = sum;
}

#define SUMS                                                                         \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
#define FLOAT_SUMS(x)                                                                                         \
  "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]), "+f"(x[4]), "+f"(x[5]), "+f"(x[6]), "+f"(x[7]), "+f"(x[8]), \
      "+f"(x[9]), "+f"(x[10]), "+f"(x[11]), "+f"(x[12]), "+f"(x[13]), "+f"(x[14]), "+f"(x[15]), "+f"(x[16]),  \
      "+f"(x[17]), "+f"(x[18]), "+f"(x[19]), "+f"(x[20]), "+f"(x[21]), "+f"(x[22]), "+f"(x[23]), "+f"(x[24]), \
      "+f"(x[25]), "+f"(x[26]), "+f"(x[27]), "+f"(x[28]), "+f"(x[29]), "+f"(x[30]), "+f"(x[31]), "+f"(x[32]), \
      "+f"(x[33]), "+f"(x[34]), "+f"(x[35]), "+f"(x[36]), "+f"(x[37]), "+f"(x[38]), "+f"(x[39]), "+f"(x[40]), \
      "+f"(x[41]), "+f"(x[42]), "+f"(x[43]), "+f"(x[44]), "+f"(x[45]), "+f"(x[46]), "+f"(x[47]), "+f"(x[48]), \
      "+f"(x[49]), "+f"(x[50]), "+f"(x[51]), "+f"(x[52]), "+f"(x[53]), "+f"(x[54]), "+f"(x[55]), "+f"(x[56]), \
      "+f"(x[57]), "+f"(x[58]), "+f"(x[59]), "+f"(x[60]), "+f"(x[61]), "+f"(x[62]), "+f"(x[63])
#define INT_SUMS(x)                                                                                           \
  "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3]), "+r"(x[4]), "+r"(x[5]), "+r"(x[6]), "+r"(x[7]), "+r"(x[8]), \
      "+r"(x[9]), "+r"(x[10]), "+r"(x[11]), "+r"(x[12]), "+r"(x[13]), "+r"(x[14]), "+r"(x[15]), "+r"(x[16]),  \
      "+r"(x[17]), "+r"(x[18]), "+r"(x[19]), "+r"(x[20]), "+r"(x[21]), "+r"(x[22]), "+r"(x[23]), "+r"(x[24]), \
      "+r"(x[25]), "+r"(x[26]), "+r"(x[27]), "+r"(x[28]), "+r"(x[29]), "+r"(x[30]), "+r"(x[31]), "+r"(x[32]), \
      "+r"(x[33]), "+r"(x[34]), "+r"(x[35]), "+r"(x[36]), "+r"(x[37]), "+r"(x[38]), "+r"(x[39]), "+r"(x[40]), \
      "+r"(x[41]), "+r"(x[42]), "+r"(x[43]), "+r"(x[44]), "+r"(x[45]), "+r"(x[46]), "+r"(x[47]), "+r"(x[48]), \
      "+r"(x[49]), "+r"(x[50]), "+r"(x[51]), "+r"(x[52]), "+r"(x[53]), "+r"(x[54]), "+r"(x[55]), "+r"(x[56]), \
      "+r"(x[57]), "+r"(x[58]), "+r"(x[59]), "+r"(x[60]), "+r"(x[61]), "+r"(x[62]), "+r"(x[63])

#define WGMMA_PEAK(name, shape, Sum, OPERANDS, modifiers)                                                             \
  extern "C" __global__ __launch_bounds__(kBlockThreads) void name(float* sums, unsigned a, unsigned b, int rounds) { \
    chain_products<Sum>(sums, b, rounds, [&](Sum(&x)[kSums], unsigned long long right) {                              \
      asm volatile("wgmma.mma_async.sync.aligned." shape " " SUMS "{%64, %64, %64, %64}, %65, " modifiers ";"         \
                   : OPERANDS(x)                                                                                      \
                   : "r"(a), "l"(right));                                                                             \
    });                                                                                                               \
  }

// After the descriptor: whether to add to the sums, the signs of both operands, and for 16 bits whether the right one
// is transposed.
WGMMA_PEAK(peak_fp16_wgmma, "m64n128k16.f32.f16.f16", float, FLOAT_SUMS, "1, 1, 1, 0")
WGMMA_PEAK(peak_bf16_wgmma, "m64n128k16.f32.bf16.bf16", float, FLOAT_SUMS, "1, 1, 1, 0")
WGMMA_PEAK(peak_tf32_wgmma, "m64n128k8.f32.tf32.tf32", float, FLOAT_SUMS, "1, 1, 1")
WGMMA_PEAK(peak_fp8_wgmma, "m64n128k32.f32.e4m3.e4m3", float, FLOAT_SUMS, "1, 1, 1")
WGMMA_PEAK(peak_int8_wgmma, "m64n128k32.s32.s8.s8", int, INT_SUMS, "1")
#endif
