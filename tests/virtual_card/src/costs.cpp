// What work costs: waves of blocks for arithmetic, bytes over bandwidth for the rest, and what a test planted.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "../../native/fake_cupti_emit.h"
#include "card.h"

namespace card {

namespace {

constexpr double kFlopsPerFma = 2;
constexpr int kWarp = 32;
constexpr double kElementsPerThread = 4;  // PyTorch's elementwise kernels, where the arguments do not tell
constexpr double kBytesPerElement = 4;

bool has(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

bool runs_beside(const Device& on, std::string_view part, Ns start) {
  return std::any_of(on.running.begin(), on.running.end(), [&](const Running& other) {
    return other.span.start <= start && start < other.span.end && has(other.name, part);
  });
}

bool matches(const Plant& plant, const Device& on, const Work& work, Ns start) {
  if (!plant.beside.empty() && !runs_beside(on, plant.beside, start)) return false;
  const char* name = work.kind == Work::kCopy ? "copy" : work.kind == Work::kSet ? "set" : work.name;
  const double blocks = work.blocks();
  return has(name, plant.match) && blocks >= plant.from_blocks && blocks < plant.below_blocks &&
         work.bytes >= plant.from_bytes && work.bytes < plant.below_bytes && work.flops >= plant.from_flops &&
         work.flops < plant.below_flops;
}

double copy_ns(const Work& work) {
  const Costs& costs = config().costs;
  const double rate = work.pageable ? costs.pageable_bytes_per_s : costs.pinned_bytes_per_s;
  return costs.copy_ns + static_cast<double>(work.copied) / rate * 1e9;
}

// Whether the L2 still has all that the work uses: less was moved since than it holds.
bool is_in_l2(const Device& on, const Work& work) {
  bool any = false;
  for (const void* address : work.touched) {
    if (address == nullptr) continue;
    const auto last = on.touched_at.find(address);
    if (last == on.touched_at.end()) return false;
    if (on.moved_bytes - last->second > static_cast<double>(on.facts->l2_bytes)) return false;
    any = true;
  }
  return any;
}

// The work's own bytes count too: what is larger than the L2 leaves nothing of itself there.
void touch(Device& on, const Work& work) {
  for (const void* address : work.touched) {
    if (address != nullptr) on.touched_at[address] = on.moved_bytes;
  }
  on.moved_bytes += work.bytes;
}

double memory_ns(const Device& on, const Work& work) {
  const Costs& costs = config().costs;
  const double faster = costs.l2_speed > 1 && is_in_l2(on, work) ? costs.l2_speed : 1;
  return work.bytes / (on.facts->memory_bytes_per_s * costs.memory_efficiency * faster) * 1e9;
}

// Whole waves: the last one takes as long as the others, however few blocks it has.
double waves_of(const DeviceFacts& on, const Work& work, double resident) {
  return std::ceil(work.blocks() / (on.sm_count * resident));
}

double arithmetic_ns(const Device& on, const Work& work, double clock) {
  if (work.flops == 0) return 0;
  const DeviceFacts& facts = *on.facts;
  // A grid of less than a wave spreads over the SMs.
  const double resident = std::min<double>(resident_blocks(facts, work), std::ceil(work.blocks() / facts.sm_count));
  const double waves = waves_of(facts, work, resident);
  const double per_clock = work.flops_per_sm_clock > 0 ? work.flops_per_sm_clock : facts.fp32_per_sm;
  const double sm_flops_per_s = per_clock * kFlopsPerFma * facts.clock_hz * clock * config().costs.product_efficiency;
  return waves * resident * work.flops_of_block() / sm_flops_per_s * 1e9;
}

// The kernel of profiling/hardware/stream_clock.py: of each SM its cycles and the time.
void write_clocks(const Device& on, const Work& work, Ns start) {
  for (int sm = 0; sm < on.facts->sm_count; ++sm) {
    const double ns = static_cast<double>(start) - on.slowed_ns;
    work.clocks[2 * sm] = static_cast<std::uint64_t>(ns * on.facts->clock_hz / 1e9);
    work.clocks[2 * sm + 1] = static_cast<std::uint64_t>(start);
  }
}

double bytes_per_element(std::string_view name) {
  if (has(name, "4HalfE") || has(name, "8BFloat16E")) return 2;
  return has(name, "IdE") ? 8 : kBytesPerElement;
}

// The number after a text, e.g. of arrays after "arrayIPcLm"; 0 without it.
int number_after(std::string_view name, std::string_view text) {
  const std::size_t at = name.find(text);
  return at == std::string_view::npos ? 0 : std::atoi(name.data() + at + text.size());
}

// The metadata of torch's foreach kernels: addresses by depth, the elements of each tensor, and by block its tensor and
// which chunk of it (aten/src/ATen/native/cuda/MultiTensorApply.cuh).
double foreach_elements(const void* metadata, int depth, double blocks) {
  constexpr int kMostTensors[] = {110, 64, 48, 36, 30};
  constexpr std::int64_t kChunk = 65'536;
  constexpr int kMostBlocks = 320;
  if (depth < 1 || depth > 5) return 0;
  const int tensors = kMostTensors[depth - 1];
  const auto* bytes = static_cast<const unsigned char*>(metadata) + std::size_t(depth) * tensors * sizeof(void*);
  const auto* elements = reinterpret_cast<const std::int64_t*>(bytes);
  const unsigned char* tensor_of = bytes + tensors * sizeof(std::int64_t);
  const auto* chunk_of = reinterpret_cast<const int*>(tensor_of + kMostBlocks);
  double sum = 0;
  for (int block = 0; block < std::min<int>(static_cast<int>(blocks), kMostBlocks); ++block) {
    const std::int64_t left = elements[tensor_of[block] % tensors] - chunk_of[block] * kChunk;
    sum += static_cast<double>(std::clamp<std::int64_t>(left, 0, kChunk));
  }
  return sum;
}

}  // namespace

int resident_blocks(const DeviceFacts& on, const Work& work) {
  if (work.resident > 0) return work.resident;
  const int warps = std::max(1, static_cast<int>(std::ceil(work.threads() / kWarp)));
  int blocks = std::min(on.warps_per_sm / warps, on.blocks_per_sm);
  blocks = std::min(blocks, on.registers_per_sm / (std::max(work.registers, 1) * kWarp * warps));
  const std::size_t shared = work.static_shared + work.dynamic_shared;
  if (shared > 0) blocks = std::min(blocks, static_cast<int>(on.shared_per_sm / shared));
  return std::max(blocks, 1);
}

double share_of_sms(const DeviceFacts& on, const Work& work) {
  if (work.kind != Work::kKernel) return 0;
  return std::min(1.0, work.blocks() / (double(on.sm_count) * resident_blocks(on, work)));
}

double locked_share(const Device& on) {
  const double locked_hz = shared().locked_hz[on.index];
  return locked_hz > 0 ? std::min(1.0, locked_hz / on.facts->clock_hz) : 1;
}

Ns duration_of(Device& on, Work& work, Ns start) {
  double clock = locked_share(on), slower = 1, add_ns = 0;
  for (const Plant& plant : config().plants) {
    if (!matches(plant, on, work, start)) continue;
    clock = std::min(clock, plant.clock);
    slower *= plant.slower;
    add_ns += plant.add_ns + plant.wave_ns * waves_of(*on.facts, work, resident_blocks(*on.facts, work));
    if (!plant.name.empty()) work.name = keep(plant.name.c_str());
  }
  double ns = config().costs.kernel_ns / clock + work.cycles / (on.facts->clock_hz * clock) * 1e9 +
              std::max(memory_ns(on, work), arithmetic_ns(on, work, clock));
  if (work.kind == Work::kCopy && work.copy_kind <= 2) ns = copy_ns(work);
  ns = ns * slower + add_ns;
  touch(on, work);
  on.slowed_ns += (1 - clock) * ns;
  if (work.clocks != nullptr) write_clocks(on, work, start);
  on.clock = clock;
  on.clock_until = start + static_cast<Ns>(ns);
  return static_cast<Ns>(ns);
}

void read_arguments(Work& work, void** arguments) {
  const std::string_view name = work.name;
  const double threads = work.blocks() * work.threads();
  work.bytes = threads * kElementsPerThread * bytes_per_element(name);
  if (arguments == nullptr) return;
  if (name == "curvescope_clocks") {
    work.clocks = *static_cast<std::uint64_t**>(arguments[0]);
    work.bytes = 0;
  } else if (has(name, "spin_kernel")) {  // torch.cuda._sleep
    work.cycles = static_cast<double>(*static_cast<const std::int64_t*>(arguments[0]));
    work.bytes = 0;
  } else if (has(name, "multi_tensor_apply_kernel")) {
    const int depth = number_after(name, "TensorListMetadataILi");
    const double elements = foreach_elements(arguments[0], depth, work.blocks());
    if (depth > 0) work.bytes = elements * (depth + 1) * bytes_per_element(name);  // one of them is written
  } else if (has(name, "elementwise_kernel")) {
    const int arrays = std::max(2, number_after(name, "arrayIPcLm"));
    work.bytes = double(*static_cast<const int*>(arguments[0])) * arrays * bytes_per_element(name);
    if (has(name, "vectorized_elementwise") && arrays <= 4) {  // N, the function, the addresses
      for (int i = 0; i < arrays; ++i) work.touched[i] = static_cast<void* const*>(arguments[2])[i];
    }
  }
}

}  // namespace card
