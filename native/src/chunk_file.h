// Appends chunks to the file of this process.
#pragma once

#include <string>

#include "chunk_format.h"

namespace curvescope {

class ChunkFile {
 public:
  // The path is made on the first write; nothing is opened before.
  explicit ChunkFile(const std::string& folder) : folder_(folder) {}

  // False: the disk did not take it; what was there before is whole.
  bool append(ChunkKind kind, std::int64_t thread, const void* payload, std::size_t bytes) noexcept;

 private:
  bool create();

  std::string folder_;
  std::string path_;
  bool broken_ = false;  // ends in a torn chunk: nothing may follow
};

}  // namespace curvescope
