// Appends chunks to the file of this process.
#pragma once

#include <cstdint>
#include <string>

#include "chunk_format.h"

namespace curvescope {

class ChunkFile {
 public:
  // The file is created by the first write.
  explicit ChunkFile(const std::string& folder);

  // With the process id, the name of the file.
  std::int64_t started_ns() const noexcept { return started_ns_; }

  struct Part {
    const void* data;
    std::size_t bytes;
  };

  // Appends a chunk whose payload is both parts. Returns false if the write failed; earlier chunks stay intact.
  bool append(ChunkKind kind, std::uint64_t first, Part payload, Part rest = {nullptr, 0}) noexcept;

 private:
  std::int64_t started_ns_;
  std::string path_;
  bool created_ = false;
  bool broken_ = false;  // the file ends in a torn chunk: no chunk may follow
};

}  // namespace curvescope
