#include "shared_counts.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "curvescope/collector.h"

namespace curvescope {

SharedCounts* SharedCounts::create(const std::string& folder) noexcept try {
  const std::string path =
      folder + "/" + std::to_string(getpid()) + "-" + std::to_string(curvescope_clock_ns()) + ".counts";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  // Reserve the blocks: a store to a page without a block on a full disk would kill the program.
  void* memory = MAP_FAILED;
  if (posix_fallocate(file, 0, sizeof(SharedCounts)) == 0) {
    memory = mmap(nullptr, sizeof(SharedCounts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  }
  close(file);
  if (memory == MAP_FAILED) {
    unlink(path.c_str());
    return nullptr;
  }
  auto* counts = new (memory) SharedCounts{};
  counts->process = getpid();
  counts->magic = kCountsMagic;
  return counts;
} catch (...) {
  return nullptr;
}

}  // namespace curvescope
