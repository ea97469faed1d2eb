#include "products.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../../native/fake_cupti_emit.h"

namespace card {

namespace {

constexpr std::int64_t kAligned = 8;  // elements of 16 bits

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

// What the least aligned operand allows to read at once, as a power of two of elements.
std::int64_t alignment_of(const Product& p) {
  std::int64_t alignment = kAligned;
  for (const std::int64_t leading : p.leading) alignment = std::gcd(alignment, leading);
  return alignment;
}

// On tensor cores NVIDIA's guide asks for multiples of 16 bytes ("Matrix Multiplication Background", 2.2). Others took
// older kernels on an A100, where an odd vocabulary cost 1.8 times as long (pegainfer, pull request 1046: 1.67 ms of a
// step that then took 0.75 ms less), and on an H100, where a width of 3420 did.
bool is_unaligned(const DeviceFacts& on, const Product& p) {
  const bool is_short = p.precision == Precision::kFp16 || p.precision == Precision::kBf16;
  return is_short && on.fp16_per_sm > 0 && on.major >= 8 && alignment_of(p) < kAligned;
}

// The kernels' names there: of odd extents, and of even ones.
std::string name_of_unaligned(const Product& p, const Tile& tile) {
  const std::string type = p.precision == Precision::kBf16 ? "bf16" : "f16";
  const bool is_odd = alignment_of(p) == 1;
  const std::string instructions =
      is_odd ? "75_tensorop_" + type + "_s1688gemm_" : "80_tensorop_" + type + "_s16816gemm_";
  return "cutlass_" + instructions + type + "_" + in_words(tile) + (is_odd ? "_" : "_64x3_") + p.layout + "_align" +
         (is_odd ? "1" : "2");
}

// The names of one library's kernels by architecture.
std::string name_of(const DeviceFacts& on, const Product& p, const Tile& tile) {
  if (is_unaligned(on, p)) return name_of_unaligned(p, tile);
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

// The name of a precision in the table of measured products.
const char* in_short(Precision precision) {
  switch (precision) {
    case Precision::kFp64:
      return "fp64";
    case Precision::kTf32:
      return "tf32";
    case Precision::kFp16:
    case Precision::kBf16:  // as fast
      return "bf16";
    case Precision::kFp8:
      return "fp8";
    default:
      return "fp32";
  }
}

Work tiles_work(const DeviceFacts& on, const Product& p, const Tile& tile) {
  Work work;
  work.grid = dim3(static_cast<unsigned int>(std::ceil(p.m / tile.m)),
                   static_cast<unsigned int>(std::ceil(p.n / tile.n)), static_cast<unsigned int>(p.batch));
  work.block = dim3(static_cast<unsigned int>(tile.threads));
  work.registers = tile.registers;
  work.flops = work.blocks() * tile.m * tile.n * p.k * 2;
  work.flops_per_sm_clock = fmas_per_clock(on, p.precision);
  return work;
}

// What the card makes of a square product that was measured: the share of its waves' arithmetic, and its clock.
struct Reached {
  double flops, efficiency, clock;
};

std::vector<Reached> reached_by(const DeviceFacts& on, Precision precision) {
  std::vector<Reached> all;
  for (const MeasuredProduct& one : on.products) {
    if (one.precision != in_short(precision)) continue;
    const Product p{one.extent, one.extent, one.extent, 1, precision};
    Work work = tiles_work(on, p, choose(on, p));
    work.efficiency = 1;
    constexpr double kUsual = 0.99;  // a clock so high is the usual one
    const double share = one.clock_hz / on.clock_hz, clock = share > kUsual ? 1 : share;
    const double ns = one.ns - config().costs.kernel_ns / clock;
    all.push_back({2 * std::pow(one.extent, 3), arithmetic_ns(on, work, clock) / ns, clock});
  }
  std::sort(all.begin(), all.end(), [](const Reached& a, const Reached& b) { return a.flops < b.flops; });
  return all;
}

// Between two measured products by the logarithm of their FLOPs, beyond them as the next one.
void limit_as_measured(const DeviceFacts& on, const Product& p, Work* work) {
  const std::vector<Reached> all = reached_by(on, p.precision);
  if (all.empty()) return;
  const double flops = 2 * p.m * p.n * p.k * p.batch;
  std::size_t upper = 0;
  while (upper < all.size() && all[upper].flops < flops) ++upper;
  const Reached& high = all[std::min(upper, all.size() - 1)];
  const Reached& low = all[upper == 0 ? 0 : upper - 1];
  const double span = std::log(high.flops / low.flops);
  const double part = span > 0 ? std::log(flops / low.flops) / span : 0;
  work->efficiency = low.efficiency + part * (high.efficiency - low.efficiency);
  work->sustained_clock = low.clock + part * (high.clock - low.clock);
}

}  // namespace

double element_bytes(Precision precision) {
  if (precision == Precision::kFp64) return 8;
  if (precision == Precision::kFp8) return 1;
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
    case Precision::kFp8:
      return on.fp8_per_sm > 0 ? on.fp8_per_sm : on.fp32_per_sm;
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
    case Precision::kFp8:
      return "e4m3bf16_e4m3f32_f32";
    default:
      return "f32f32_f32f32_f32";
  }
}

std::string tile_of(const Product& p, const DeviceFacts& on) { return in_words(choose(on, p)); }

Work work_of(const Product& p, const DeviceFacts& on) {
  const Tile& tile = choose(on, p);
  Work work = tiles_work(on, p, tile);
  work.name = keep(name_of(on, p, tile).c_str());
  limit_as_measured(on, p, &work);
  if (is_unaligned(on, p)) work.slower = config().costs.unaligned_slower;
  work.bytes = (p.m * p.k + p.k * p.n + p.m * p.n) * p.batch * element_bytes(p.precision);
  std::copy(std::begin(p.operands), std::end(p.operands), work.touched);
  return work;
}

void launch_product(const Product& p, Stream* stream) { submit(stream, work_of(p, *stream->device->facts)); }

}  // namespace card
