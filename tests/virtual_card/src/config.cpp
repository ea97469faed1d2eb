// The configuration: a text of lines, which card.py writes and VIRTUAL_CARD names.
//
//   time virtual | time real
//   shared FILE               what the processes of a test share
//   device                    begins one; the lines after it, up to `cost`, are its own:
//   fact NAME VALUE
//   product PRECISION EXTENT NS CLOCK_HZ             a square product on a real card
//   convolution DIRECTION SIZES                      N C H W, K C R S and N K P Q; begins one on a real card
//   kernel NS STREAM LAUNCH_NS GRID BLOCK REGISTERS SHARED NAME    a kernel of the last convolution
//   cost NAME VALUE
//   noise SEED
//   spread NAME SHARE FACTOR ...                     quantiles of what varies, from the least
//   plant NAME VALUE ...      pairs, by the fields of Plant
//   forget_plants             all before it
//   neighbour PID             a process that NVML tells of
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "card.h"

namespace card {

namespace {

using Setter = std::function<void(const std::string&)>;

Setter number(double* to) {
  return [to](const std::string& text) { *to = std::atof(text.c_str()); };
}

Setter whole(int* to) {
  return [to](const std::string& text) { *to = std::atoi(text.c_str()); };
}

Setter size(std::size_t* to) {
  return [to](const std::string& text) { *to = static_cast<std::size_t>(std::atof(text.c_str())); };
}

Setter words(std::string* to) {
  return [to](const std::string& text) { *to = text; };
}

std::map<std::string, Setter> facts_of(DeviceFacts* d) {
  return {{"name", words(&d->name)},
          {"major", whole(&d->major)},
          {"minor", whole(&d->minor)},
          {"sm_count", whole(&d->sm_count)},
          {"warps_per_sm", whole(&d->warps_per_sm)},
          {"blocks_per_sm", whole(&d->blocks_per_sm)},
          {"registers_per_sm", whole(&d->registers_per_sm)},
          {"shared_per_sm", size(&d->shared_per_sm)},
          {"shared_per_block", size(&d->shared_per_block)},
          {"l2_bytes", size(&d->l2_bytes)},
          {"memory_bytes", size(&d->memory_bytes)},
          {"memory_bytes_per_s", number(&d->memory_bytes_per_s)},
          {"clock_hz", number(&d->clock_hz)},
          {"base_clock_hz", number(&d->base_clock_hz)},
          {"fp64_per_sm", number(&d->fp64_per_sm)},
          {"fp32_per_sm", number(&d->fp32_per_sm)},
          {"tf32_per_sm", number(&d->tf32_per_sm)},
          {"fp16_per_sm", number(&d->fp16_per_sm)},
          {"fp16_lanes", number(&d->fp16_lanes)},
          {"fp8_per_sm", number(&d->fp8_per_sm)}};
}

std::map<std::string, Setter> fields_of(Costs* c) {
  return {{"call_ns", number(&c->call_ns)},
          {"launch_ns", number(&c->launch_ns)},
          {"start_ns", number(&c->start_ns)},
          {"gap_ns", number(&c->gap_ns)},
          {"kernel_ns", number(&c->kernel_ns)},
          {"copy_ns", number(&c->copy_ns)},
          {"event_ns", number(&c->event_ns)},
          {"event_gap_ns", number(&c->event_gap_ns)},
          {"power_ns", number(&c->power_ns)},
          {"node_ns", number(&c->node_ns)},
          {"allocation_ns", number(&c->allocation_ns)},
          {"pinned_bytes_per_s", number(&c->pinned_bytes_per_s)},
          {"pageable_bytes_per_s", number(&c->pageable_bytes_per_s)},
          {"link_bytes_per_s", number(&c->link_bytes_per_s)},
          {"memory_efficiency", number(&c->memory_efficiency)},
          {"strided_efficiency", number(&c->strided_efficiency)},
          {"event_resolution_ns", number(&c->event_resolution_ns)},
          {"whole_waves", number(&c->whole_waves)},
          {"product_efficiency", number(&c->product_efficiency)},
          {"unaligned_slower", number(&c->unaligned_slower)},
          {"l2_speed", number(&c->l2_speed)},
          {"watts_idle", number(&c->watts_idle)},
          {"watts_busy", number(&c->watts_busy)},
          {"watts_limit", number(&c->watts_limit)},
          {"energy_ns", number(&c->energy_ns)},
          {"ramp_ns", number(&c->ramp_ns)},
          {"ramp_after_ns", number(&c->ramp_after_ns)},
          {"heat_ns", number(&c->heat_ns)},
          {"heat_clock", number(&c->heat_clock)},
          {"other_ns", number(&c->other_ns)},
          {"other_every_ns", number(&c->other_every_ns)},
          {"other_share", number(&c->other_share)}};
}

std::map<std::string, Setter> fields_of(Plant* p) {
  return {{"match", words(&p->match)},
          {"from_blocks", number(&p->from_blocks)},
          {"below_blocks", number(&p->below_blocks)},
          {"from_bytes", number(&p->from_bytes)},
          {"below_bytes", number(&p->below_bytes)},
          {"from_flops", number(&p->from_flops)},
          {"below_flops", number(&p->below_flops)},
          {"slower", number(&p->slower)},
          {"add_ns", number(&p->add_ns)},
          {"wave_ns", number(&p->wave_ns)},
          {"clock", number(&p->clock)},
          {"name", words(&p->name)},
          {"beside", words(&p->beside)}};
}

bool apply(const std::map<std::string, Setter>& fields, const std::string& name, const std::string& value) {
  const auto found = fields.find(name);
  if (found == fields.end()) return false;
  found->second(value);
  return true;
}

bool read_measured(DeviceFacts* into, const std::string& kind, std::istringstream& text) {
  if (kind == "product") {
    MeasuredProduct p;
    text >> p.precision >> p.extent >> p.ns >> p.clock_hz;
    into->products.push_back(p);
  } else if (kind == "convolution") {
    RecordedConvolution c;
    text >> c.direction;
    c.sizes.resize(12);
    for (std::int64_t& size : c.sizes) text >> size;
    into->convolutions.push_back(c);
  } else {
    if (into->convolutions.empty()) return false;
    RecordedKernel k;
    text >> k.ns >> k.stream >> k.launch_ns >> k.grid.x >> k.grid.y >> k.grid.z >> k.block.x >> k.block.y >>
        k.block.z >> k.registers >> k.shared;
    std::getline(text >> std::ws, k.name);
    into->convolutions.back().kernels.push_back(k);
  }
  return static_cast<bool>(text);
}

bool read_spread(Config* into, std::istringstream& text) {
  const char* const kNames[kSpreads] = {"call", "host", "work", "long", "step"};  // by `Spread`
  std::string name;
  text >> name;
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) return false;
  std::vector<Quantile>& spread = into->spreads[found - std::begin(kNames)];
  spread.clear();
  for (Quantile one{}; text >> one.share >> one.factor;) spread.push_back(one);
  return spread.size() >= 2;
}

bool read_line(Config* into, const std::string& line) {
  std::istringstream text(line);
  std::string kind, name, value;
  if (!(text >> kind) || kind[0] == '#') return true;
  if (kind == "device") {
    into->devices.emplace_back();
    return true;
  }
  if (kind == "plant") {
    Plant plant;
    const auto fields = fields_of(&plant);
    while (text >> name >> value) {
      if (!apply(fields, name, value)) return false;
    }
    into->plants.push_back(plant);
    return true;
  }
  if (kind == "product" || kind == "convolution" || kind == "kernel")
    return !into->devices.empty() && read_measured(&into->devices.back(), kind, text);
  if (kind == "neighbour") return static_cast<bool>(text >> into->neighbour_pid);
  if (kind == "noise") return static_cast<bool>(text >> into->noise);
  if (kind == "spread") return read_spread(into, text);
  if (kind == "forget_plants") {
    into->plants.clear();
    return true;
  }
  if (!(text >> name)) return false;
  std::getline(text >> std::ws, value);
  if (kind == "time") {
    into->virtual_time = name == "virtual";
    return true;
  }
  if (kind == "shared") {
    into->shared_file = name;
    return true;
  }
  if (kind == "fact") return !into->devices.empty() && apply(facts_of(&into->devices.back()), name, value);
  return kind == "cost" && apply(fields_of(&into->costs), name, value);
}

Config* read_config() {
  auto* made = new Config;  // never freed: the process may end while a thread still calls
  const char* path = std::getenv("VIRTUAL_CARD");
  std::ifstream file(path == nullptr ? "" : path);
  std::string line;
  while (std::getline(file, line)) {
    if (read_line(made, line)) continue;
    std::fprintf(stderr, "virtual card: %s has a line that says nothing: %s\n", path, line.c_str());
    std::_Exit(70);
  }
  return made;
}

}  // namespace

Config& config() {
  static Config& read = *read_config();
  return read;
}

bool configure(const std::string& line) {
  LOCK();
  return read_line(&config(), line);
}

}  // namespace card

// For the program of a test: ctypes.CDLL(None).virtual_card_configure(b"plant match gemm slower 2").
extern "C" int virtual_card_configure(const char* line) { return card::configure(line) ? 1 : 0; }
