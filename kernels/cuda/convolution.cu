// Convolution as an implicit GEMM, fp32, NCHW: forward, backward data, backward weights.
//
// Each is a matrix product whose one operand is never written down: its elements are found in the tensor when the tile
// product asks for them (an explicit im2col matrix would be up to kernel_h x kernel_w times the input). With the
// channels of one group, and one group per blockIdx.z:
//
//                    rows of C      columns of C                          depth
//   forward          out channel    batch, out_h, out_w                   in channel, kernel_h, kernel_w
//   backward data    in channel     batch, in_h, in_w                     out channel, kernel_h, kernel_w
//   backward weights out channel    in channel, kernel_h, kernel_w        batch, out_h, out_w
//
// Launch: 256 threads, grid (ceil(columns / 128), ceil(rows / 128), groups). FLOPs, one FMA being two:
// 2 batch out_channels out_h out_w in_channels/groups kernel_h kernel_w for each of the three, though backward data
// also multiplies the zeros between strides, and forward those of the padding. What a library does beyond this:
// divisions by multiplication, and a depth split over blocks for backward weights, which has few tiles.
#include "tile.cuh"

// Fields in the order that kernels/catalog.py packs them. Channels are those of all groups.
struct Convolution {
  int batch, in_channels, in_h, in_w;
  int out_channels, kernel_h, kernel_w, out_h, out_w;
  int stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups;

  __device__ int group_in() const { return in_channels / groups; }
  __device__ int group_out() const { return out_channels / groups; }
  __device__ int taps() const { return kernel_h * kernel_w; }

  // Index of a pixel in a tensor of `channels` channels, `channel` counted over all groups.
  __device__ static unsigned pixel(int image, int channel, int channels, int y, int x, int h, int w) {
    return ((static_cast<unsigned>(image) * channels + channel) * h + y) * w + x;
  }
};

// The input pixel under filter tap (channel, r, s) at output position (image, p, q); zero in the padding.
__device__ float input_at(const Convolution& conv, const float* input, int position, int tap) {
  const int in_area_taps = conv.group_in() * conv.taps();
  const int out_area = conv.out_h * conv.out_w;
  if (position >= conv.batch * out_area || tap >= in_area_taps) return 0.0f;
  const int image = position / out_area, p = position % out_area / conv.out_w, q = position % conv.out_w;
  const int channel = blockIdx.z * conv.group_in() + tap / conv.taps();
  const int r = tap % conv.taps() / conv.kernel_w, s = tap % conv.kernel_w;
  const int y = p * conv.stride_h - conv.pad_h + r * conv.dilation_h;
  const int x = q * conv.stride_w - conv.pad_w + s * conv.dilation_w;
  if (y < 0 || y >= conv.in_h || x < 0 || x >= conv.in_w) return 0.0f;
  return input[Convolution::pixel(image, channel, conv.in_channels, y, x, conv.in_h, conv.in_w)];
}

struct InputByPosition {
  static constexpr bool kDepthAdjacent = false;
  const Convolution& conv;
  const float* input;
  __device__ float operator()(int position, int tap) const { return input_at(conv, input, position, tap); }
};

struct InputByTap {
  static constexpr bool kDepthAdjacent = true;
  const Convolution& conv;
  const float* input;
  __device__ float operator()(int tap, int position) const { return input_at(conv, input, position, tap); }
};

// Filters seen from the input: line = in channel, k = (out channel, r, s).
struct FilterByInput {
  static constexpr bool kDepthAdjacent = true;
  const Convolution& conv;
  const float* weights;
  __device__ float operator()(int channel, int k) const {
    if (channel >= conv.group_in() || k >= conv.group_out() * conv.taps()) return 0.0f;
    const int out_channel = blockIdx.z * conv.group_out() + k / conv.taps();
    return weights[(static_cast<unsigned>(out_channel) * conv.group_in() + channel) * conv.taps() + k % conv.taps()];
  }
};

// The output gradients that an input pixel takes part in: line = (image, y, x), k = (out channel, r, s).
struct GradientByInput {
  static constexpr bool kDepthAdjacent = false;
  const Convolution& conv;
  const float* gradient;
  __device__ float operator()(int pixel, int k) const {
    const int in_area = conv.in_h * conv.in_w;
    if (pixel >= conv.batch * in_area || k >= conv.group_out() * conv.taps()) return 0.0f;
    const int image = pixel / in_area, y = pixel % in_area / conv.in_w, x = pixel % conv.in_w;
    const int channel = blockIdx.z * conv.group_out() + k / conv.taps();
    const int r = k % conv.taps() / conv.kernel_w, s = k % conv.kernel_w;
    // forward: y = p stride - pad + r dilation; the tap met this pixel only where p comes out whole.
    const int p = y + conv.pad_h - r * conv.dilation_h, q = x + conv.pad_w - s * conv.dilation_w;
    if (p < 0 || q < 0 || p % conv.stride_h != 0 || q % conv.stride_w != 0) return 0.0f;
    if (p / conv.stride_h >= conv.out_h || q / conv.stride_w >= conv.out_w) return 0.0f;
    return gradient[Convolution::pixel(image, channel, conv.out_channels, p / conv.stride_h, q / conv.stride_w,
                                       conv.out_h, conv.out_w)];
  }
};

// Output gradients: line = out channel, k = (image, p, q).
struct GradientByOutput {
  static constexpr bool kDepthAdjacent = true;
  const Convolution& conv;
  const float* gradient;
  __device__ float operator()(int channel, int position) const {
    const int out_area = conv.out_h * conv.out_w;
    if (channel >= conv.group_out() || position >= conv.batch * out_area) return 0.0f;
    const unsigned image_channel =
        static_cast<unsigned>(position / out_area) * conv.out_channels + blockIdx.z * conv.group_out() + channel;
    return gradient[image_channel * out_area + position % out_area];
  }
};

// Writes the tile to a tensor whose rows are channels of this group and whose columns are (image, pixel).
__device__ void store_images(const float (&sum)[kPiece][kPiece], float* tensor, int rows, int groups, int batch,
                             int area) {
#pragma unroll
  for (int j = 0; j < kPiece; ++j) {
    const int column = tile_column(j);
    if (column >= batch * area) continue;
    const unsigned first = static_cast<unsigned>(column / area) * groups * rows + blockIdx.z * rows;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if (tile_row(i) < rows) tensor[(first + tile_row(i)) * area + column % area] = sum[i][j];
    }
  }
}

extern "C" {

__global__ __launch_bounds__(kBlockThreads, 2) void convolution_forward(const float* input, const float* weights,
                                                                        float* output, const Convolution conv) {
  const int depth = conv.group_in() * conv.taps();
  const Matrix<true> filters{weights + blockIdx.z * conv.group_out() * depth, conv.group_out(), depth};
  float sum[kPiece][kPiece];
  multiply_tile(filters, InputByPosition{conv, input}, depth, sum);
  store_images(sum, output, conv.group_out(), conv.groups, conv.batch, conv.out_h * conv.out_w);
}

__global__ __launch_bounds__(kBlockThreads,
                             2) void convolution_backward_data(const float* gradient, const float* weights,
                                                               float* input_gradient, const Convolution conv) {
  float sum[kPiece][kPiece];
  multiply_tile(FilterByInput{conv, weights}, GradientByInput{conv, gradient}, conv.group_out() * conv.taps(), sum);
  store_images(sum, input_gradient, conv.group_in(), conv.groups, conv.batch, conv.in_h * conv.in_w);
}

__global__ __launch_bounds__(kBlockThreads,
                             2) void convolution_backward_weights(const float* input, const float* gradient,
                                                                  float* weight_gradient, const Convolution conv) {
  const int columns = conv.group_in() * conv.taps();
  float sum[kPiece][kPiece];
  multiply_tile(GradientByOutput{conv, gradient}, InputByTap{conv, input}, conv.batch * conv.out_h * conv.out_w, sum);
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    const int row = tile_row(i);
    if (row >= conv.group_out()) continue;
    const unsigned first = (blockIdx.z * conv.group_out() + row) * columns;
#pragma unroll
    for (int j = 0; j < kPiece; ++j) {
      if (tile_column(j) < columns) weight_gradient[first + tile_column(j)] = sum[i][j];
    }
  }
}

}  // extern "C"
