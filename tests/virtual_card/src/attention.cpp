#include "attention.h"

#include <cmath>
#include <cstring>
#include <string_view>

#include "../../native/fake_cupti_emit.h"

namespace card {

namespace {

constexpr double kProducts = 2, kBackwardProducts = 5;  // of queries, keys and width
constexpr double kCausal = 0.5;                         // of the blocks are computed
constexpr double kRows = 128;                           // of queries that a block of cuDNN's kernel takes

// A kernel of PyTorch, and where its first argument has the extents: offsets in bytes. What it reaches of the tensor
// cores is about what FlashAttention's authors published for an H100, where their third version and cuDNN reach 0.6.
struct Kernel {
  const char* name;
  bool is_backward;
  std::size_t heads, queries, keys, width;
  const char* is_causal;  // part of the name; null: the arguments say it, and all is computed
  double reached;
};
constexpr double kReachedByCudnn = 0.6;
constexpr Kernel kKernels[] = {
    {"flash_fwd_kernel", false, 96, 180, 184, 192, "EELb0ELb1E", 0.35},
    {"flash_bwd_dq_dk_dv", true, 96, 180, 184, 192, "EELb0ELb1E", 0.3},
    {"fmha_cutlassF", false, 0, 104, 108, 96, nullptr, 0.2},
    {"fmha_cutlassB", true, 152, 144, 148, 136, nullptr, 0.15},
};

double elements_of(const Attention& a) { return a.batch * a.heads * a.width * (2 * a.queries + 2 * a.keys); }

void fill(const DeviceFacts& on, const Attention& a, double reached, Work* work) {
  const double products = a.is_backward ? kBackwardProducts : kProducts;
  work->flops = 2 * products * a.batch * a.heads * a.queries * a.keys * a.width * (a.is_causal ? kCausal : 1);
  work->flops_per_sm_clock = fmas_per_clock(on, a.precision);
  work->efficiency = reached;
  work->bytes = elements_of(a) * element_bytes(a.precision) * (a.is_backward ? 2 : 1);
}

int whole_at(const void* argument, std::size_t offset) {
  int value = 0;
  std::memcpy(&value, static_cast<const char*>(argument) + offset, sizeof value);
  return value;
}

}  // namespace

// The gradient of the queries is summed in fp32.
std::int64_t workspace_bytes(const Attention& a) {
  return a.is_backward ? static_cast<std::int64_t>(a.batch * a.heads * a.queries * a.width * 4) : 0;
}

void launch_attention(const Attention& a, Stream* stream) {
  const DeviceFacts& on = *stream->device->facts;
  const std::string sm = std::to_string(on.major * 10 + on.minor);
  Work work;
  work.name = keep(("cudnn_generated_fort_native_sdpa_sm" + sm + "_flash_" + (a.is_backward ? "bprop" : "fprop") +
                    (on.major >= 9 ? "_wgmma" : "") + "_f16_knob_7_64x128x128_4x1x1_kernel0_0")
                       .c_str());
  const double rows = a.is_backward ? a.keys : a.queries;
  work.grid = dim3(static_cast<unsigned int>(std::ceil(rows / kRows)), static_cast<unsigned int>(a.heads),
                   static_cast<unsigned int>(a.batch));
  work.block = dim3(384);
  work.registers = 168;
  fill(on, a, kReachedByCudnn, &work);
  launch_from_library([&] { submit(stream, work); });
}

bool read_attention(const DeviceFacts& on, Work* work, void** arguments) {
  const std::string_view name = work->name;
  for (const Kernel& kernel : kKernels) {
    if (name.find(kernel.name) == std::string_view::npos) continue;
    const void* from = arguments[0];
    const bool is_flash = kernel.is_causal != nullptr;
    Attention a;
    a.batch = is_flash ? work->grid.y : work->grid.z;
    a.heads = is_flash ? work->grid.z : work->grid.y;
    a.queries = whole_at(from, kernel.queries);
    a.keys = whole_at(from, kernel.keys);
    a.width = whole_at(from, kernel.width);
    a.is_backward = kernel.is_backward;
    a.is_causal = is_flash && name.find(kernel.is_causal) != std::string_view::npos;
    if (name.find("_f32_") != std::string_view::npos) a.precision = Precision::kFp32;
    const bool has_heads = kernel.heads == 0 || whole_at(from, kernel.heads) == static_cast<int>(a.heads);
    constexpr double kMost = 1 << 20, kWidest = 512;
    const bool is_extent = a.queries > 0 && a.queries < kMost && a.keys > 0 && a.keys < kMost;
    if (!has_heads || !is_extent || a.width <= 0 || a.width > kWidest) return false;  // another layout
    fill(on, a, kernel.reached, work);
    return true;
  }
  return false;
}

}  // namespace card
