#include "shared_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace curvescope {

namespace {

std::uint64_t reserve(int file, std::size_t bytes) noexcept {
  void* first = mmap(nullptr, sizeof(MemoryHeader), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (first == MAP_FAILED) return 0;
  auto* header = static_cast<MemoryHeader*>(first);
  std::uint64_t at = 0;
  if (header->magic == kMemoryMagic) {
    at = header->allocated.fetch_add((bytes + kBlockStep - 1) / kBlockStep * kBlockStep);
    if (at + bytes > header->bytes) at = 0;
  }
  munmap(first, sizeof(MemoryHeader));
  return at;
}

}  // namespace

void* SharedMemory::map(std::size_t bytes) noexcept {
  process_ = getpid();
  // Opened anew for each block: a program may close every descriptor it did not open and reuse the numbers.
  const int file = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  struct stat about{};
  if (file < 0 || fstat(file, &about) != 0 || about.st_size < static_cast<off_t>(kBlockStep)) {
    if (file >= 0) close(file);
    return nullptr;
  }
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // a signal would interrupt the reservation
  void* memory = MAP_FAILED;
  const std::uint64_t at = reserve(file, bytes);
  if (at != 0 && posix_fallocate(file, static_cast<off_t>(at), static_cast<off_t>(bytes)) == 0) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, static_cast<off_t>(at));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  close(file);
  return memory == MAP_FAILED ? nullptr : memory;
}

void SharedMemory::release(BlockHeader* block) noexcept {
  const std::size_t bytes = block->bytes;
  block->magic.store(0, std::memory_order_release);
  madvise(block, bytes, MADV_REMOVE);
  munmap(block, bytes);
}

bool SharedLog::append(const void* first, std::size_t first_bytes, const void* second,
                       std::size_t second_bytes) noexcept {
  if (full_) return false;
  const std::size_t bytes = first_bytes + second_bytes;
  std::uint64_t used = block_ == nullptr ? 0 : block_->used.load(std::memory_order_relaxed);
  if (block_ == nullptr || sizeof(Block) + used + bytes > block_->header.bytes) {
    block_ = memory_->make<Block>(kind_, std::max(kBlockStep, sizeof(Block) + bytes));
    used = 0;
    full_ = block_ == nullptr;
    if (full_) return false;
  }
  char* to = reinterpret_cast<char*>(block_ + 1) + used;
  std::memcpy(to, first, first_bytes);
  if (second_bytes != 0) std::memcpy(to + first_bytes, second, second_bytes);
  block_->used.store(used + bytes, std::memory_order_release);
  return true;
}

}  // namespace curvescope
