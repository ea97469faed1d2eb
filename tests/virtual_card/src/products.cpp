#include "products.h"

#include <algorithm>
#include <cmath>

#include "../../native/fake_cupti_emit.h"

namespace card {

namespace {

struct Tile {
  int m, n, threads, registers;
};

constexpr Tile kTiles[] = {{128, 128, 256, 122}, {128, 64, 128, 122}, {64, 64, 128, 80}, {32, 32, 64, 80}};

double tiles_of(const Product& p, const Tile& tile) {
  return std::ceil(p.m / tile.m) * std::ceil(p.n / tile.n) * p.batch;
}

int most_resident(const DeviceFacts& on, const Tile& tile) {
  Work work;
  work.block.x = static_cast<unsigned int>(tile.threads);
  work.registers = tile.registers;
  return resident_blocks(on, work);
}

// As cuBLAS' heuristics do: the tile whose waves take the least time; a small tile reads its operands more often.
const Tile& choose(const DeviceFacts& on, const Product& p) {
  const auto cost = [&](const Tile& tile) {
    const double blocks = tiles_of(p, tile);
    const double resident = std::min<double>(most_resident(on, tile), std::ceil(blocks / on.sm_count));
    const double waves = std::ceil(blocks / (on.sm_count * resident));
    const double reading = 1 + 16.0 / tile.m + 16.0 / tile.n;
    return waves * resident * tile.m * tile.n * reading;
  };
  return *std::min_element(std::begin(kTiles), std::end(kTiles),
                           [&](const Tile& a, const Tile& b) { return cost(a) < cost(b); });
}

std::string in_words(const Tile& tile) { return std::to_string(tile.m) + "x" + std::to_string(tile.n); }

// The names of one library's kernels by architecture.
std::string name_of(const DeviceFacts& on, const Product& p, const Tile& tile) {
  const std::string size = in_words(tile);
  const bool single = p.precision == Precision::kFp32 || p.precision == Precision::kFp64;
  const std::string letter = p.precision == Precision::kFp64 ? "dgemm" : "sgemm";
  if (on.major >= 9)
    return std::string(single ? "sm80" : "sm90") + "_xmma_gemm_" + types_of(p.precision) + "_" + p.layout +
           "_n_tilesize" + size + (single ? "x8_stage3_warpsize2x2x1_ffma" : "x32_warpgroupsize1x1x1") +
           "_execute_kernel__5x_cublas";
  if (on.major == 8 && !single) return "ampere_" + std::string("s16816gemm_") + size + "_ldg8_stages_32x5_" + p.layout;
  if (on.major == 8) return "ampere_" + letter + "_" + size + "_" + p.layout;
  if (on.major == 7 && !single) return "volta_fp16_s884gemm_fp16_" + size + "_ldg8_f2f_" + p.layout;
  if (on.major == 7) return "volta_" + letter + "_" + size + "_" + p.layout;
  if (on.major >= 5) return "maxwell_" + letter + "_" + size + "_" + p.layout;
  return letter + "_sm35_ldg_" + p.layout + "_" + size;
}

}  // namespace

double element_bytes(Precision precision) {
  if (precision == Precision::kFp64) return 8;
  return precision == Precision::kFp16 || precision == Precision::kBf16 ? 2 : 4;
}

double fmas_per_clock(const DeviceFacts& on, Precision precision) {
  switch (precision) {
    case Precision::kFp64:
      return on.fp64_per_sm;
    case Precision::kTf32:
      return on.tf32_per_sm > 0 ? on.tf32_per_sm : on.fp32_per_sm;
    case Precision::kFp16:
    case Precision::kBf16:
      if (on.fp16_per_sm > 0) return on.fp16_per_sm;
      return on.fp16_lanes > 0 ? on.fp16_lanes : on.fp32_per_sm;
    default:
      return on.fp32_per_sm;
  }
}

std::string types_of(Precision precision) {
  switch (precision) {
    case Precision::kFp64:
      return "f64f64_f64f64_f64";
    case Precision::kTf32:
      return "f32f32_tf32f32_f32";
    case Precision::kFp16:
      return "f16f16_f16f32_f32";
    case Precision::kBf16:
      return "bf16bf16_bf16f32_f32";
    default:
      return "f32f32_f32f32_f32";
  }
}

std::string tile_of(const Product& p, const DeviceFacts& on) { return in_words(choose(on, p)); }

Work work_of(const Product& p, const DeviceFacts& on) {
  const Tile& tile = choose(on, p);
  Work work;
  work.name = keep(name_of(on, p, tile).c_str());
  work.grid = dim3(static_cast<unsigned int>(std::ceil(p.m / tile.m)),
                   static_cast<unsigned int>(std::ceil(p.n / tile.n)), static_cast<unsigned int>(p.batch));
  work.block = dim3(static_cast<unsigned int>(tile.threads));
  work.registers = tile.registers;
  work.flops = work.blocks() * tile.m * tile.n * p.k * 2;
  work.flops_per_sm_clock = fmas_per_clock(on, p.precision);
  work.bytes = (p.m * p.k + p.k * p.n + p.m * p.n) * p.batch * element_bytes(p.precision);
  std::copy(std::begin(p.operands), std::end(p.operands), work.touched);
  return work;
}

void launch_product(const Product& p, Stream* stream) { submit(stream, work_of(p, *stream->device->facts)); }

}  // namespace card
