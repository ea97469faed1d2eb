// Convolutions, as products of tiles: cuDNN's kernels by their families' names.
#pragma once

#include <cstdint>
#include <vector>

#include "products.h"

namespace card {

enum class Direction { kForward, kData, kFilter };
// The second is faster, and takes a workspace; the third is what cuDNN chose on a real card. The last is none of a
// convolution.
enum class Algorithm { kImplicitGemm, kPrecomputed, kRecorded, kAttention };

struct Engine {
  Algorithm algorithm;
  bool tf32;
};

struct Convolution {
  Direction direction = Direction::kForward;
  std::vector<std::int64_t> image, filter, result;  // N C H W, K C R S, N K P Q
  Precision precision = Precision::kFp32;
  bool channels_last = false;
};

bool is_recorded(const Convolution& convolution, const DeviceFacts& on);
std::int64_t workspace_bytes(const Convolution& convolution, const Engine& engine);
void launch_convolution(const Convolution& convolution, const Engine& engine, Stream* stream);

}  // namespace card
