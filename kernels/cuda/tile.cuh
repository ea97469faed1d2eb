// The tile product that gemm.cu and convolution.cu share.
//
// A block of 256 threads computes one 128 x 128 tile of C = A B, each thread 8 x 8 elements of it, so that every
// number read from shared memory is used 8 times and every number read from DRAM 128 times. Both operands are seen as
// lines x depth (a line is a row of A or a column of B); where an element lies in memory is the operand's own affair:
//
//     struct Operand {
//       static constexpr bool kDepthAdjacent;            // is (line, k + 1) the neighbour of (line, k) in memory?
//       __device__ float operator()(int line, int k) const;  // zero outside, so ragged edges need no case of their own
//     };
//
// Two stages alternate in shared memory: while one is multiplied, the next is on its way from DRAM into registers, and
// one barrier per stage is enough. What a library does beyond this: 16-byte loads from DRAM, asynchronous copies (sm_80
// on), tensor cores, and several tile shapes to choose from.
#pragma once

constexpr int kTile = 128;      // lines of either operand per block
constexpr int kStageDepth = 8;  // depth per stage: 2 operands x 2 stages x 8 x 132 floats = 16.5 KiB per block
constexpr int kBlockThreads = 256;
constexpr int kHalf = kTile / 2;
constexpr int kPiece = 8;  // lines of either operand per thread: 64 sums, held in registers
constexpr int kPitch =
    kTile + 4;  // 4 more: stores by neighbours in depth meet 32 different banks, rows stay 16-aligned
constexpr int kLoads = kTile * kStageDepth / kBlockThreads;

// Which element of an operand's stage the thread loads as its i-th: neighbours in memory go to neighbouring threads.
template <bool kDepthAdjacent>
__device__ int stage_line(int i) {
  const int element = threadIdx.x + i * kBlockThreads;
  return kDepthAdjacent ? element / kStageDepth : element % kTile;
}

template <bool kDepthAdjacent>
__device__ int stage_depth(int i) {
  const int element = threadIdx.x + i * kBlockThreads;
  return kDepthAdjacent ? element % kStageDepth : element / kTile;
}

template <typename Operand>
__device__ void fetch(const Operand& operand, int first_line, int first_k, float (&held)[kLoads]) {
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    held[i] =
        operand(first_line + stage_line<Operand::kDepthAdjacent>(i), first_k + stage_depth<Operand::kDepthAdjacent>(i));
  }
}

template <typename Operand>
__device__ void put(const float (&held)[kLoads], float (&stage)[kStageDepth][kPitch]) {
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    stage[stage_depth<Operand::kDepthAdjacent>(i)][stage_line<Operand::kDepthAdjacent>(i)] = held[i];
  }
}

// The thread's i-th line within the tile. The piece is two halves of 4 neighbours, 64 apart: the 16 threads that differ
// in column then read 64 adjacent floats at once, which meets no bank twice.
__device__ int line_in_tile(int thread, int i) { return i / 4 * kHalf + thread * 4 + i % 4; }

// Row of C of the thread's i-th element, and column of its j-th.
__device__ int tile_row(int i) { return blockIdx.y * kTile + line_in_tile(threadIdx.x / 16, i); }
__device__ int tile_column(int j) { return blockIdx.x * kTile + line_in_tile(threadIdx.x % 16, j); }

__device__ void multiply_stage(const float (&left)[kStageDepth][kPitch], const float (&right)[kStageDepth][kPitch],
                               float (&sum)[kPiece][kPiece]) {
#pragma unroll
  for (int k = 0; k < kStageDepth; ++k) {
    float a[kPiece], b[kPiece];
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      a[i] = left[k][line_in_tile(threadIdx.x / 16, i)];
      b[i] = right[k][line_in_tile(threadIdx.x % 16, i)];
    }
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
#pragma unroll
      for (int j = 0; j < kPiece; ++j) sum[i][j] += a[i] * b[j];
    }
  }
}

// sum[i][j] = element (tile_row(i), tile_column(j)) of A B, over the whole depth.
template <typename Left, typename Right>
__device__ void multiply_tile(const Left& left, const Right& right, int depth, float (&sum)[kPiece][kPiece]) {
  __shared__ __align__(16) float left_stages[2][kStageDepth][kPitch];
  __shared__ __align__(16) float right_stages[2][kStageDepth][kPitch];
  const int first_row = blockIdx.y * kTile;
  const int first_column = blockIdx.x * kTile;
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
#pragma unroll
    for (int j = 0; j < kPiece; ++j) sum[i][j] = 0.0f;
  }

  // Round by round: ask DRAM for stage i, multiply stage i - 1, then put stage i where the multiplication is not.
  float left_held[kLoads], right_held[kLoads];
  int current = 0;
  for (int first_k = 0; first_k < depth + kStageDepth; first_k += kStageDepth) {
    const bool more = first_k < depth;
    if (more) {
      fetch(left, first_row, first_k, left_held);
      fetch(right, first_column, first_k, right_held);
    }
    if (first_k > 0) multiply_stage(left_stages[current], right_stages[current], sum);
    current ^= 1;
    if (more) {
      put<Left>(left_held, left_stages[current]);
      put<Right>(right_held, right_stages[current]);
    }
    __syncthreads();
  }
}

// A dense matrix seen as lines x depth. Offsets are unsigned: 2^32 elements (16 GiB), and the registers of 64 bits
// saved.
template <bool kAdjacent>
struct Matrix {
  static constexpr bool kDepthAdjacent = kAdjacent;
  const float* data;
  int lines;
  int depth;

  __device__ float operator()(int line, int k) const {
    if (line >= lines || k >= depth) return 0.0f;
    return data[kAdjacent ? static_cast<unsigned>(line) * depth + k : static_cast<unsigned>(k) * lines + line];
  }
};
