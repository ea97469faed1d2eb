// What one process recorded, counted in a file that it maps: the counts outlive a process that is killed, calls
// os._exit or exec, so that the recording command can tell what was lost with it. profiling/collect/chunks.py reads it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace curvescope {

constexpr std::uint64_t kCountsMagic = 0x31544e4356435643;  // "CVCVCNT1" in the file's little-endian bytes
constexpr std::size_t kMostThreads = 512;                   // recorded at a time; 384 MiB of rings

using SharedCount = std::atomic<std::uint64_t>;
static_assert(SharedCount::is_always_lock_free && sizeof(SharedCount) == 8);

struct SharedCounts {
  struct alignas(64) Thread {
    SharedCount begun;  // pushes, starts and marks that a ring took, of the threads that used this slot
  };

  std::uint64_t magic;
  std::int64_t process;
  SharedCount dropped;      // pushes, starts and marks for which there was no room
  SharedCount unwritten;    // ranges and marks that could not be written
  SharedCount gpu_buffers;  // given to CUPTI, and not yet written
  std::uint64_t reserved[3];
  std::array<Thread, kMostThreads> threads;

  // A file of this process in the folder, mapped until the process ends; null where there is no room for it.
  static SharedCounts* create(const std::string& folder) noexcept;
};
static_assert(sizeof(SharedCounts) == 64 * (1 + kMostThreads));

}  // namespace curvescope
