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
  const double reached = work.is_strided ? costs.strided_efficiency : costs.memory_efficiency;
  return work.bytes / (on.facts->memory_bytes_per_s * reached * faster) * 1e9;
}

// Whole waves: the last one takes as long as the others, however few blocks it has, unless a test wants to know what
// that costs.
double waves_of(const DeviceFacts& on, const Work& work, double resident) {
  const double waves = work.blocks() / (on.sm_count * resident);
  return config().costs.whole_waves > 0 ? std::ceil(waves) : waves;
}

// The clock that the limit of power leaves at a time: it goes towards that of the kernel, and in a pause towards the
// usual one.
double towards(double clock, double target, double ns) {
  return target + (clock - target) * std::exp(-ns / config().costs.power_ns);
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
struct ForeachLayout {
  int tensors[5];  // by depth
  int blocks;
  std::size_t index_bytes;  // of a block's tensor
};
// Arguments of 4 KiB, and those of 32 KiB that PyTorch takes later.
constexpr ForeachLayout kForeachLayouts[] = {{{110, 64, 48, 36, 30}, 320, 1}, {{770, 448, 336, 252, 210}, 2240, 2}};

// All elements that the blocks work on; 0 if the metadata has another layout.
double foreach_elements(const void* metadata, const ForeachLayout& layout, int depth, int blocks) {
  constexpr std::int64_t kChunk = 65'536, kMost = std::int64_t{1} << 40;  // an address is larger
  const int tensors = layout.tensors[depth - 1];
  const auto* bytes = static_cast<const unsigned char*>(metadata) + std::size_t(depth) * tensors * sizeof(void*);
  const auto* elements = reinterpret_cast<const std::int64_t*>(bytes);
  const unsigned char* tensor_of = bytes + tensors * sizeof(std::int64_t);
  const auto* chunk_of = reinterpret_cast<const int*>(tensor_of + layout.blocks * layout.index_bytes);
  double sum = 0;
  for (int block = 0; block < blocks; ++block) {
    std::uint16_t tensor = 0;
    std::memcpy(&tensor, tensor_of + block * layout.index_bytes, layout.index_bytes);
    if (tensor >= tensors || elements[tensor] < 0 || elements[tensor] > kMost) return 0;
    const std::int64_t left = elements[tensor] - chunk_of[block] * kChunk;
    if (left <= 0) return 0;
    sum += static_cast<double>(std::min(left, kChunk));
  }
  return sum;
}

double foreach_elements(const void* metadata, int depth, int blocks) {
  if (depth < 1 || depth > 5) return 0;
  for (const ForeachLayout& layout : kForeachLayouts) {
    if (blocks > layout.blocks) continue;
    const double found = foreach_elements(metadata, layout, depth, blocks);
    if (found > 0) return found;
  }
  return 0;
}

// Of torch's reductions: ReduceConfig after the operation and its neutral element (ATen/native/cuda/Reduce.cuh); 0 if
// it is not there.
double reduced_bytes(const void* operation) {
  constexpr int kFurthest = 8;
  const auto* words = static_cast<const int*>(operation);
  for (int at = 1; at < kFurthest; ++at) {
    const int size = words[at], inputs = words[at + 1], outputs = words[at + 2], step = words[at + 3];
    const bool is_size = size == 1 || size == 2 || size == 4 || size == 8;
    if (is_size && outputs > 0 && inputs > 0 && step > 0) return double(inputs) * outputs * size;  // inputs of each
  }
  return 0;
}

}  // namespace

double arithmetic_ns(const DeviceFacts& facts, const Work& work, double clock) {
  if (work.flops == 0) return 0;
  // A grid of less than a wave spreads over the SMs.
  const double resident = std::min<double>(resident_blocks(facts, work), std::ceil(work.blocks() / facts.sm_count));
  const double waves = waves_of(facts, work, resident);
  const double per_clock = work.flops_per_sm_clock > 0 ? work.flops_per_sm_clock : facts.fp32_per_sm;
  const double efficiency = work.efficiency > 0 ? work.efficiency : config().costs.product_efficiency;
  const double sm_flops_per_s = per_clock * kFlopsPerFma * facts.clock_hz * clock * efficiency;
  return waves * resident * work.flops_of_block() / sm_flops_per_s * 1e9;
}

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

double resting_share(const Device& on) {
  const double base = on.facts->base_clock_hz / on.facts->clock_hz;
  return config().costs.ramp_ns > 0 ? std::min(base, locked_share(on)) : locked_share(on);
}

bool is_hot(const Device& on) { return config().costs.heat_ns > 0 && on.heat_ns >= config().costs.heat_ns; }

bool other_runs(Ns at) {
  const Costs& costs = config().costs;
  return costs.other_ns > 0 && std::fmod(static_cast<double>(at), costs.other_every_ns) < costs.other_ns;
}

namespace {

// The clock of work that starts then, as heat and a pause before it leave it.
double clock_after_pause(Device& on, Ns start, double pause_ns) {
  const Costs& costs = config().costs;
  on.heat_ns = std::max(0.0, on.heat_ns - pause_ns);
  if (costs.ramp_ns > 0 && pause_ns > costs.ramp_after_ns) on.ramped_from = start;
  double clock = is_hot(on) ? costs.heat_clock : 1;
  if (costs.ramp_ns > 0) {
    const double low = on.facts->base_clock_hz / on.facts->clock_hz;
    clock = std::min(clock, 1 + (low - 1) * std::exp(-static_cast<double>(start - on.ramped_from) / costs.ramp_ns));
  }
  return clock;
}

}  // namespace

Ns duration_of(Device& on, Work& work, Ns start) {
  const auto pause_ns = static_cast<double>(std::max<Ns>(0, start - on.clock_until));
  const double rested = towards(on.power_clock, 1, pause_ns);
  double clock = std::min(locked_share(on), std::max(rested, work.sustained_clock)), slower = 1, add_ns = 0;
  clock = std::min(clock, clock_after_pause(on, start, pause_ns));
  for (const Plant& plant : config().plants) {
    if (!matches(plant, on, work, start)) continue;
    clock = std::min(clock, plant.clock);
    slower *= plant.slower;
    add_ns += plant.add_ns + plant.wave_ns * waves_of(*on.facts, work, resident_blocks(*on.facts, work));
    if (!plant.name.empty()) work.name = keep(plant.name.c_str());
  }
  double ns = config().costs.kernel_ns / clock + work.cycles / (on.facts->clock_hz * clock) * 1e9 +
              std::max(memory_ns(on, work), arithmetic_ns(*on.facts, work, clock));
  if (work.kind == Work::kCopy && work.copy_kind <= 2) ns = copy_ns(work);
  if (other_runs(start)) slower /= 1 - config().costs.other_share;
  ns = ns * slower * work.slower + add_ns;
  ns *= vary_work(ns);
  touch(on, work);
  on.slowed_ns += (1 - clock) * ns;
  if (work.clocks != nullptr) write_clocks(on, work, start);
  on.power_clock = towards(rested, work.sustained_clock, ns);
  on.heat_ns = std::min(on.heat_ns + ns, 2 * config().costs.heat_ns);
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
    const double elements = foreach_elements(arguments[0], depth, static_cast<int>(work.blocks()));
    if (elements > 0) work.bytes = elements * (depth + 1) * bytes_per_element(name);  // one of them is written
  } else if (has(name, "13reduce_kernel")) {
    if (const double bytes = reduced_bytes(arguments[0]); bytes > 0) work.bytes = bytes;
  } else if (has(name, "SoftMaxForward")) {  // the result, the input, the elements of a row; a block for each row
    work.bytes = work.blocks() * *static_cast<const int*>(arguments[2]) * 2 * bytes_per_element(name);
  } else if (has(name, "vectorized_layer_norm_kernel")) {  // the elements of a row first
    work.bytes = work.blocks() * *static_cast<const int*>(arguments[0]) * 2 * bytes_per_element(name);
  } else if (has(name, "elementwise_kernel")) {
    const int found = number_after(name, "arrayIPcLm"), arrays = found > 0 ? found : 2;
    work.bytes = double(*static_cast<const int*>(arguments[0])) * arrays * bytes_per_element(name);
    work.is_strided = has(name, "18elementwise_kernel");
    if (has(name, "vectorized_elementwise") && arrays <= 4) {  // N, the function, the addresses
      for (int i = 0; i < arrays; ++i) work.touched[i] = static_cast<void* const*>(arguments[2])[i];
    }
  }
}

}  // namespace card
