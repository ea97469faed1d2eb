// A virtual card: what its parts share. It plays a GPU behind the public functions of CUDA and CUPTI, for a CUDA build
// of PyTorch on a machine that has no GPU. Nothing that it says comes from a real one.
//
// A kernel does nothing but take a time on its stream, which costs.cpp reckons when it is submitted. So the end of all
// work is known at once, and the host waits for a time, never for a thread.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "clock.h"

namespace card {

// ---- config.cpp: what a test chose

// A square product on a real card, and its clock meanwhile.
struct MeasuredProduct {
  std::string precision;  // as `types_of` in products.cpp has them, in short
  double extent, ns, clock_hz;
};

// What a library's kernel was on a real card.
struct RecordedKernel {
  double ns;
  int stream;        // 0: the caller's; else one of the library's own
  double launch_ns;  // the host, in its launch; 0: the usual
  dim3 grid, block;
  int registers;
  std::size_t shared;
  std::string name;
};

// The kernels of a convolution on a real card.
struct RecordedConvolution {
  std::string direction;            // fprop, dgrad or wgrad
  std::vector<std::int64_t> sizes;  // N C H W, K C R S, N K P Q
  std::vector<RecordedKernel> kernels;
  // Whether the host paces it, so that only batches of its own size run so.
  bool is_paced() const { return !kernels.empty() && kernels.front().launch_ns > 0; }
};

struct DeviceFacts {
  std::string name = "Virtual card";
  int major = 9, minor = 0;
  int sm_count = 132;
  int warps_per_sm = 64, blocks_per_sm = 32, registers_per_sm = 65'536;
  std::size_t shared_per_sm = 233'472, shared_per_block = 232'448;
  std::size_t l2_bytes = 50 << 20, memory_bytes = std::size_t{80} << 30;
  double memory_bytes_per_s = 3.35e12;
  double clock_hz = 1.98e9, base_clock_hz = 1.5e9;
  double fp64_per_sm = 64, fp32_per_sm = 128;               // FMAs that an SM starts in a clock
  double tf32_per_sm = 0, fp16_per_sm = 0, fp16_lanes = 0;  // 0: it has none; fp16 with tensor cores or without
  double fp8_per_sm = 0;
  std::vector<MeasuredProduct> products;  // none: nobody measured one
  std::vector<RecordedConvolution> convolutions;
};

// The bandwidth is 2 transfers x clock x width / 8, as CUPTI reckons.
inline int memory_bus_bits(const DeviceFacts&) { return 512; }
inline int memory_clock_khz(const DeviceFacts& facts) {
  return static_cast<int>(facts.memory_bytes_per_s * 8 / 2 / memory_bus_bits(facts) / 1000);
}

// What a kernel, copy or set costs. Each has a line `cost NAME VALUE` in the configuration.
struct Costs {
  double call_ns = 800;              // the host, in any call
  double launch_ns = 4'000;          // the host, in a launch, copy or set
  double start_ns = 3'000;           // from a call to its work on an idle stream
  double gap_ns = 700;               // between two works of one stream
  double kernel_ns = 1'200;          // the device, for a kernel of one block
  double copy_ns = 1'000;            // the device, for a copy of one byte
  double event_ns = 200;             // the device, for an event
  double event_gap_ns = 700;         // between an event and the next work of its stream
  double event_resolution_ns = 500;  // of the time between two events
  double node_ns = 600;              // the device, between two nodes of a graph
  double allocation_ns = 80'000;     // the host, in cudaMalloc and cudaFree, which also wait for the device
  double pinned_bytes_per_s = 25e9, pageable_bytes_per_s = 6e9;
  double link_bytes_per_s = 150e9;   // between two cards
  double memory_efficiency = 0.85;   // of the memory's bandwidth
  double strided_efficiency = 0.85;  // that of elementwise kernels that compute each address
  double whole_waves = 1;            // 0: the last wave of blocks takes only its share of one
  double product_efficiency = 0.85;  // of the arithmetic of full waves
  double unaligned_slower = 1.8;     // 16-bit products whose operands do not begin at multiples of 16 bytes
  double l2_speed = 1;               // bandwidth of what the L2 keeps over that of the memory; 1: it keeps nothing
  double power_ns = 14e6;            // in which the limit of power takes the clock down, and a pause brings it back
  double watts_idle = 70, watts_busy = 600, watts_limit = 700;
  double energy_ns = 0;  // between two values of the energy counter; 0: it tells each moment
  // What only a test asks for; 0: it is not there.
  double ramp_ns = 0, ramp_after_ns = 1e8;  // in which the clock rises from the base clock, after such a pause
  double heat_ns = 0, heat_clock = 0.7;     // of work without a pause, from which on the card is hot; its clock then
  double other_ns = 0, other_every_ns = 100e6;  // work of another process, and from one to the next
  double other_share = 0.5;                     // of the SMs that it takes
};

// What varies on a card, by factors: each call of the host, the host of a whole step, each short work and each long
// one, the card of a step.
enum class Spread { kCall, kHost, kWork, kLong, kStep };
constexpr int kSpreads = 5;

struct Quantile {
  double share, factor;
};

// A cause that a test plants: what it does to the work that it matches. All that match apply, in their order.
struct Plant {
  std::string match;  // part of the kernel's name; "copy" and "set" match those
  double from_blocks = 0, below_blocks = 1e18;
  double from_bytes = 0, below_bytes = 1e18;  // that it moves
  double from_flops = 0, below_flops = 1e18;
  double slower = 1;  // factor on its time
  double add_ns = 0;
  double wave_ns = 0;  // added for each wave of its blocks, the last one too
  double clock = 1;    // the highest clock of the card while it runs, as a share of the usual one
  std::string name;    // the kernel's other name
  std::string beside;  // only where a kernel runs whose name has this part
};

struct Config {
  std::vector<DeviceFacts> devices;
  Costs costs;
  std::vector<Plant> plants;
  std::uint64_t noise = 0;  // the seed; 0: every run is the same
  std::vector<Quantile> spreads[kSpreads];
  int neighbour_pid = 0;  // a process that NVML tells of beside the own
  bool virtual_time = false;
  std::string shared_file;  // `SharedState` in clock.h
};

Config& config();

// Takes a line of the configuration while the card runs; false if it cannot be read.
bool configure(const std::string& line);

// ---- clock.cpp

Ns now();                    // CLOCK_MONOTONIC, or the virtual time
void wait_until(Ns when);    // sleeps, and spins only for the last microseconds
void spend(double host_ns);  // the host's time in a call

// ---- noise.cpp: factors that are 1 without noise

double vary_call();
double vary_work(double ns);
void begin_step();  // the host has waited for the card

// ---- streams.cpp: devices, streams, events and the order of work

// What is submitted to a stream.
struct Work {
  enum Kind { kKernel, kCopy, kSet } kind = kKernel;
  const char* name = "";  // mangled; of a kernel
  dim3 grid{1, 1, 1}, block{1, 1, 1};
  int registers = 32;
  std::size_t static_shared = 0, dynamic_shared = 0;
  double flops = 0, bytes = 0;    // bytes: that the memory moves; 0 of a kernel: unknown
  double flops_per_sm_clock = 0;  // FMAs that an SM starts in a clock, for `flops`
  double efficiency = 0;          // of the arithmetic of full waves; 0: what `Costs` has
  double slower = 1;              // factor on its time
  double sustained_clock = 1;     // that the limit of power leaves, as a share of the usual clock
  double cycles = 0;              // that it waits
  int resident = 0;               // blocks that an SM runs at once; 0: by the limits
  std::size_t copied = 0;         // bytes that are copied or set
  int copy_kind = 0;              // CUpti_ActivityMemcpyKind
  bool pageable = false;
  bool is_strided = false;
  std::uint32_t value = 0;          // of a set
  std::uint64_t* clocks = nullptr;  // where it writes the cycles and the time of each SM
  const void* touched[4] = {};      // memory that it reads or writes, for the L2
  double flops_of_block() const { return flops / blocks(); }
  double blocks() const { return double(grid.x) * grid.y * grid.z; }
  double threads() const { return double(block.x) * block.y * block.z; }
};

constexpr std::size_t kQueue = 1024;         // works that a stream holds before a launch waits
constexpr std::uint32_t kFirstStreamId = 7;  // as CUPTI numbers the default one

struct Span {
  Ns start, end;
};

struct Device;
struct Capture;

struct Stream {
  Device* device = nullptr;
  std::uint32_t id = kFirstStreamId;
  bool blocking = true;  // whether it is ordered with the legacy default stream
  int priority = 0;
  Ns ready = 0;              // when all that was submitted is done
  bool after_event = false;  // whether an event is the last of it
  std::deque<Ns> queued;     // ends of what the queue still holds
  Capture* capture = nullptr;
};

struct Event {
  Ns at = 0;
  bool recorded = false;
  bool timed = true;
  Stream* stream = nullptr;
  Capture* capture = nullptr;      // of the graph in which it was recorded last
  std::vector<std::size_t> nodes;  // what it waits for there
};

struct Running {
  Span span;
  double share;      // of the SMs
  const char* name;  // of a kernel
};

struct Device {
  int index = 0;
  const DeviceFacts* facts = nullptr;
  Stream legacy{};
  std::vector<std::unique_ptr<Stream>> streams;
  std::deque<Running> running;
  Ns copy_ready[2] = {0, 0};
  std::size_t used_bytes = 0;
  Ns busy_ns = 0;    // of kernels so far
  double clock = 1;  // of the last kernel, as a share of the usual clock
  Ns clock_until = 0;
  double power_clock = 1;                    // that the limit of power leaves after the last kernel
  double slowed_ns = 0;                      // that a lower clock took away from the cycles of its SMs so far
  Ns ramped_from = 0;                        // when the clock last began to rise
  double heat_ns = 0;                        // of work less pauses
  Ns energy_at = -1;                         // when the energy counter last moved
  double millijoules = 0;                    // what it says
  std::vector<Stream*> library_streams;      // that libraries made
  double moved_bytes = 0;                    // by all kernels so far
  std::map<const void*, double> touched_at;  // `moved_bytes` when an address was last used
};

std::recursive_mutex& mutex();
int device_count();
Device& device(int index);
int current_device();
void set_current_device(int index);
Stream* stream_of(cudaStream_t handle);
Stream* new_stream(Device& on, bool blocking, int priority);
Ns ready_of(const Device& on);
void synchronize(const Device& on);  // waits for all work of the device
void wait_for_work(Ns until);        // which ends a step
void wait_event(Stream* stream, const Event& event);
Stream* library_stream(Device& on, int number);  // from 1

// Puts work into its stream: in its order, where the card has room, waiting while the queue is full. In a stream that
// is captured it becomes a node.
Span submit(Stream* stream, const Work& work);
void record_event(Stream* stream, Event* event);
Span place(Stream* stream, const Work& work, Ns earliest, std::uint32_t graph, std::uint64_t node);

// ---- costs.cpp

int resident_blocks(const DeviceFacts& on, const Work& work);
double arithmetic_ns(const DeviceFacts& facts, const Work& work, double clock);  // without a kernel's fixed cost
double locked_share(const Device& on);   // of the usual clock, where one is locked
double resting_share(const Device& on);  // of the usual clock, after a pause
bool is_hot(const Device& on);
bool other_runs(Ns at);  // another process on the SMs
double share_of_sms(const DeviceFacts& on, const Work& work);

// The time of work that starts then; applies plants, which may change the work and the card's clock.
Ns duration_of(Device& on, Work& work, Ns start);

// FLOPs and bytes of a kernel of PyTorch, as far as its name and arguments tell.
void read_arguments(Work& work, void** arguments);

// ---- memory.cpp

enum class Memory { kUnknown, kDevice, kPinned, kManaged };

struct Allocation {
  std::size_t bytes;
  int device;
  Memory kind;
};

cudaError_t allocate(void** out, std::size_t bytes, Memory kind, std::size_t counted);
cudaError_t release(void* address);
// Null for memory that the card does not know; `base` gets its begin.
const Allocation* find_allocation(const void* address, const void** base = nullptr);
void note_memory(const void* address, Allocation what);  // that others made
void forget_memory(const void* address, std::size_t bytes);
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, Stream* stream, bool blocks);
cudaError_t set(void* to, unsigned int value, std::size_t width, std::size_t count, Stream* stream);

// ---- records.cpp: what CUPTI tells

// One call of the host: its record, its correlation id, its cost, and its error.
class Call {
 public:
  Call(bool is_driver, std::uint32_t id, double host_ns = 0);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  static std::uint32_t correlation_id();  // of the call that this thread is in
  template <typename Result>
  Result ends(Result result) {
    returned_ = static_cast<std::uint32_t>(result);
    return result;
  }

 private:
  bool is_driver_;
  std::uint32_t id_;
  std::uint32_t outer_;
  std::uint32_t returned_ = 0;
  std::uint64_t start_ = 0;
};

void record_work(const Stream& stream, const Work& work, Span span, std::uint32_t graph, std::uint64_t node);
void record_synchronization(const Stream* stream, Ns start);
void record_allocation(const void* address, std::size_t bytes, Memory kind, int device, bool is_release);

// ---- launch.cpp

const char* kernel_name(const void* handle);  // mangled
cudaError_t launch(const void* handle, dim3 grid, dim3 block, void** arguments, std::size_t shared, Stream* stream);
const void* new_kernel(const std::string& name);  // a handle for a kernel of that mangled name
// What NVIDIA's libraries launch, they launch through the runtime, and CUPTI tells of that call.
void launch_from_library(const std::function<void()>& submits, double host_ns = 0);

// ---- runtime.cpp, driver.cpp

int device_attribute(int index, int which);  // cudaDeviceAttr, which has the driver's numbers
void bus_id(char* text, int bytes, int index);
int visible_devices();
void initialize();
void open_context(int index);  // of a device that is used; the runtime's calls open it themselves
void* find_driver_function(const char* symbol);

// ---- graphs.cpp

// The node of a captured stream; what the card then runs is launched with the graph.
void capture_work(Stream* stream, const Work& work);
void capture_event(Stream* stream, Event* event);
void capture_wait(Stream* stream, const Event& event);

}  // namespace card

// A function of the runtime begins with CALL(its name in cupti_runtime_cbid.h), one of the driver with DRIVER_CALL.
#define CALL(name, ...) card::Call call(false, CUPTI_RUNTIME_TRACE_CBID_##name, ##__VA_ARGS__)
#define DRIVER_CALL(name, ...) card::Call call(true, CUPTI_DRIVER_TRACE_CBID_##name, ##__VA_ARGS__)
#define LOCK() const std::lock_guard<std::recursive_mutex> lock(card::mutex())
