// Stores the first CUPTI buffers of this process unparsed, so that records of a GPU can be replayed without one. Off
// unless CURVESCOPE_RAW_BUFFERS names a folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include "chunk_writer.h"
#include "cupti_api.h"

namespace curvescope {

class RawBuffers {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;  // per process; later buffers are not stored

  // Null if the environment names no folder, or no memory is left.
  static std::unique_ptr<RawBuffers> from_environment() noexcept;

  explicit RawBuffers(const std::string& folder) : writer_(folder, &names_) {}

  // Stores a buffer with the texts that its records point to. Returns false if the write failed.
  bool save(const CuptiApi& api, std::uint32_t cupti_version, std::uint8_t* buffer, std::size_t bytes) noexcept;

 private:
  void see(const CuptiApi& api, const CUpti_Activity* record);
  void see_name(const char* name);
  void see_call(const CuptiApi& api, CUpti_CallbackDomain domain, std::uint32_t id);

  Names names_;
  ChunkWriter writer_;
  std::size_t saved_bytes_ = 0;
  Columns texts_{"raw_names", {{"address"}, {"name", true}}};
  Columns calls_{"raw_calls", {{"is_driver"}, {"id"}, {"name", true}}};
  std::unordered_set<std::uint64_t> seen_;  // addresses, and calls
};

}  // namespace curvescope
