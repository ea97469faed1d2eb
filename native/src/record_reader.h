// Converts CUPTI's activity records to rows of the tables.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "chunk_writer.h"
#include "columns.h"
#include "cupti_api.h"

namespace curvescope {

class RecordReader {
 public:
  RecordReader(const CuptiApi& api, std::uint32_t cupti_version, Names* names);

  // Reads every record of a buffer, or stops if libcupti is unloaded; full tables are written meanwhile. Unreadable
  // records are counted as lost.
  void read(std::uint8_t* buffer, std::size_t bytes, const std::atomic<bool>& gone, ChunkWriter* writer) noexcept;

  // Writes the remaining rows.
  void write(ChunkWriter* writer) noexcept;

  // One reading of libcupti's clock between two of the host's.
  void add_clock_sample(std::int64_t before_ns, std::uint64_t cupti_ns, std::int64_t after_ns,
                        ChunkWriter* writer) noexcept;

  // From now on drops and counts work of the device that would be hours away from now by CUPTI's own clock.
  void distrust_times() noexcept { distrusts_times_ = true; }

  // A call by name and whether it is one that starts, moves, allocates or waits for GPU work.
  struct Call {
    std::uint32_t name;
    bool wanted;
    bool probe;
  };
  static bool is_wanted(const char* call) noexcept;

  // The call by which the collector asks whether CUPTI still tells it of calls; how many records of it were read.
  static bool is_probe(const char* call) noexcept;
  std::uint64_t probes() const noexcept { return probes_; }

  // Whether a kernel was read, and whether one of a CUDA graph.
  bool has_kernels() const noexcept { return has_kernels_; }
  bool has_graphs() const noexcept { return has_graphs_; }

  // Rows of the devices that CUPTI did not tell of, from the driver: CUPTI tells when CUDA is initialised, which may
  // have been before the recording. May throw std::bad_alloc.
  void add_missing_devices(ChunkWriter* writer);

 private:
  // Records of one kernel share its name's address, but a module unloaded leaves the address to another name: so the
  // text is compared with the remembered one.
  struct KnownName {
    const char* address = nullptr;
    std::string text;
    std::uint32_t id = 0;
  };

  std::uint32_t kernel_name(const char* mangled);
  // Null if the id is too high to be one.
  const Call* call_of(CUpti_CallbackDomain domain, std::uint32_t id);
  // Whether to drop a record of work that began then.
  bool is_impossible(std::uint64_t start, ChunkWriter* writer) noexcept;
  void add(const CUpti_Activity* record, ChunkWriter* writer);
  void add_kernel(const CUpti_Activity* record, ChunkWriter* writer);
  void add_transfer(const CUpti_Activity* record, ChunkWriter* writer);
  void add_call(const CUpti_Activity* record, ChunkWriter* writer);
  void add_fact(const CUpti_Activity* record, ChunkWriter* writer);

  const CuptiApi& api_;
  const bool transfers_have_graphs_;
  Names* names_;
  std::uint64_t probes_ = 0;
  bool has_kernels_ = false;
  bool has_graphs_ = false;
  bool distrusts_times_ = false;
  std::uint64_t now_ = 0;                    // by CUPTI's clock, when the buffer began to be read
  std::vector<std::uint32_t> told_devices_;  // in this recording
  std::array<KnownName, 4096> known_names_;
  std::array<std::vector<Call>, 2> calls_;  // runtime and driver, by callback id
  Columns kernels_, copies_, sets_, allocations_, calls_table_, waits_, overheads_, devices_, contexts_, environment_,
      clock_;
};

}  // namespace curvescope
