// Appends chunks to the file of this process.
#pragma once

#include <string>

#include "chunk_format.h"

namespace curvescope {

class ChunkFile {
 public:
  // The file is created by the first write.
  explicit ChunkFile(const std::string& folder) : folder_(folder) {}

  // Returns false if the write failed; earlier chunks stay intact.
  bool append(ChunkKind kind, std::int64_t thread, const void* payload, std::size_t bytes) noexcept;

 private:
  bool create();

  std::string folder_;
  std::string path_;
  bool broken_ = false;  // the file ends in a torn chunk: no chunk may follow
};

}  // namespace curvescope
