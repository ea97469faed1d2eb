// Memory of a recorded process that outlives it, however it ends: blocks of one file in memory (memfd), which the
// recording command makes and drains. profiling/collect/shared_memory.py reads it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

namespace curvescope {

constexpr char kMemoryName[] = "memory";                    // in the folder of the chunk files, a link to the memfd
constexpr std::uint64_t kMemoryMagic = 0x314d454d56435643;  // "CVCVMEM1" in the file's little-endian bytes
constexpr std::uint64_t kBlockMagic = 0x314b4c4256435643;   // "CVCVBLK1"
constexpr std::size_t kBlockStep = std::size_t{64} << 10;   // blocks begin at multiples of it
constexpr std::size_t kMostThreads = 512;                   // recorded at a time; 384 MiB of rings

using SharedCount = std::atomic<std::uint64_t>;
static_assert(SharedCount::is_always_lock_free && sizeof(SharedCount) == 8);

// The first page. The recording command makes the file so large that no process has to extend it.
struct MemoryHeader {
  std::uint64_t magic;
  std::uint64_t bytes;    // of the file
  SharedCount allocated;  // where the next block begins
};

enum class BlockKind : std::uint64_t { kProcess = 1, kRing = 2, kNames = 3, kNumbers = 4 };

struct BlockHeader {
  SharedCount magic;  // stored last: a block without it is nothing
  BlockKind kind;
  std::uint64_t bytes;
  std::int64_t process;
  std::int64_t started_ns;  // with the process id, the name of its chunk file
};
static_assert(sizeof(BlockHeader) == 40);

// What its exit handlers did; none ran where it was killed, for example.
enum class Exit : std::uint64_t { kNone = 0, kWritten = 1, kUnwritten = 2 };

// What a process counts.
struct SharedCounts {
  BlockHeader header;
  std::uint64_t pid_namespace{0};  // inode; the process id is valid in it
  SharedCount exited{0};           // an `Exit`
  SharedCount begun{0};            // pushes, starts and marks that rings of ended threads took
  SharedCount dropped{0};          // pushes, starts and marks for which there was no room
  SharedCount unwritten{0};        // ranges and marks that could not be written
  SharedCount unsaid{0};           // of GPU records: lost, and the disk had no room for the counts by kind
  SharedCount gpu_buffers{0};      // given to CUPTI, and not yet written
};
static_assert(sizeof(SharedCounts) == 96);

class SharedMemory {
 public:
  SharedMemory(const std::string& folder, std::int64_t started_ns)
      : path_(folder + "/" + kMemoryName), started_ns_(started_ns) {}

  // A new block, whose pages exist: a store to one without memory would kill the program. Null where none can be made.
  template <typename Block>
  Block* make(BlockKind kind, std::size_t bytes = sizeof(Block)) noexcept {
    void* memory = map(bytes);
    if (memory == nullptr) return nullptr;
    auto* block = new (memory) Block;
    block->header.kind = kind;
    block->header.bytes = bytes;
    block->header.process = process_;
    block->header.started_ns = started_ns_;
    block->header.magic.store(kBlockMagic, std::memory_order_release);
    return block;
  }

  // Gives the memory back; the recording command does not see the block any more.
  static void release(BlockHeader* block) noexcept;

 private:
  void* map(std::size_t bytes) noexcept;

  std::string path_;
  std::int64_t started_ns_;
  std::int64_t process_ = 0;  // set by map
};

// Bytes that are only appended to, in blocks; ids of names count on over the blocks of a process.
class SharedLog {
 public:
  SharedLog(SharedMemory* memory, BlockKind kind) : memory_(memory), kind_(kind) {}

  // Appends both parts or, if there is no memory, nothing any more: false then.
  bool append(const void* first, std::size_t first_bytes, const void* second, std::size_t second_bytes) noexcept;

 private:
  struct Block {
    BlockHeader header;
    SharedCount used{0};  // bytes after this header, stored after them
  };
  static_assert(sizeof(Block) == 48);

  SharedMemory* memory_;
  BlockKind kind_;
  Block* block_ = nullptr;
  bool full_ = false;
};

}  // namespace curvescope
