// SGEMM: C = alpha op(A) op(B) + beta C in fp32, all four transposes.
//
// Matrices are dense and row-major: op(A) is m x k, op(B) is k x n, C is m x n. `_nt` means A as it is, B stored
// transposed (n x k). Launch: 256 threads, grid (ceil(n / 128), ceil(m / 128)). FLOPs: 2 m n k. With beta = 0, C is not
// read, as in BLAS. The product itself is in tile.cuh.
#include "tile.cuh"

template <bool kTransposeA, bool kTransposeB>
__device__ void sgemm(const float* a, const float* b, float* c, int m, int n, int k, float alpha, float beta) {
  const Matrix<!kTransposeA> left{a, m, k};
  const Matrix<kTransposeB> right{b, n, k};
  float sum[kPiece][kPiece];
  multiply_tile(left, right, k, sum);
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    const int row = tile_row(i);
    if (row >= m) continue;
#pragma unroll
    for (int j = 0; j < kPiece; ++j) {
      const int column = tile_column(j);
      if (column >= n) continue;
      float& element = c[static_cast<unsigned>(row) * n + column];
      element = beta == 0.0f ? alpha * sum[i][j] : alpha * sum[i][j] + beta * element;
    }
  }
}

extern "C" {

__global__ __launch_bounds__(kBlockThreads, 2) void sgemm_nn(const float* a, const float* b, float* c, int m, int n,
                                                             int k, float alpha, float beta) {
  sgemm<false, false>(a, b, c, m, n, k, alpha, beta);
}

__global__ __launch_bounds__(kBlockThreads, 2) void sgemm_nt(const float* a, const float* b, float* c, int m, int n,
                                                             int k, float alpha, float beta) {
  sgemm<false, true>(a, b, c, m, n, k, alpha, beta);
}

__global__ __launch_bounds__(kBlockThreads, 2) void sgemm_tn(const float* a, const float* b, float* c, int m, int n,
                                                             int k, float alpha, float beta) {
  sgemm<true, false>(a, b, c, m, n, k, alpha, beta);
}

__global__ __launch_bounds__(kBlockThreads, 2) void sgemm_tt(const float* a, const float* b, float* c, int m, int n,
                                                             int k, float alpha, float beta) {
  sgemm<true, true>(a, b, c, m, n, k, alpha, beta);
}

}  // extern "C"
