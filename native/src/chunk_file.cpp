#include "chunk_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "curvescope/collector.h"

namespace curvescope {

ChunkFile::ChunkFile(const std::string& folder)
    : started_ns_(curvescope_clock_ns()),
      path_(folder + "/" + std::to_string(getpid()) + "-" + std::to_string(started_ns_) + ".chunks") {}

bool ChunkFile::append(ChunkKind kind, std::uint64_t first, Part payload, Part rest) noexcept {
  if (broken_) return false;
  // Opened anew for each chunk: a program may close every descriptor it did not open and reuse the numbers. A file that
  // is gone is not made again: the recording has ended.
  const int file = open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | (created_ ? 0 : O_CREAT | O_EXCL), 0600);
  if (file < 0) return false;
  created_ = true;
  const std::size_t bytes = payload.bytes + rest.bytes;
  ChunkHeader header{kChunkMagic, kChunkVersion, static_cast<std::uint16_t>(kind), bytes, getpid(), first, 0, 0};
  header.payload_crc = crc32(rest.data, rest.bytes, crc32(payload.data, payload.bytes));
  header.header_crc = crc32(&header, offsetof(ChunkHeader, header_crc));
  const iovec parts[3] = {{&header, sizeof(header)},
                          {const_cast<void*>(payload.data), payload.bytes},
                          {const_cast<void*>(rest.data), rest.bytes}};
  struct stat before{};
  const bool known = fstat(file, &before) == 0;
  const bool whole = known && writev(file, parts, 3) == static_cast<ssize_t>(sizeof(header) + bytes);
  // A torn chunk would hide the next from the reader, so it is cut off again.
  if (known && !whole) broken_ = ftruncate(file, before.st_size) != 0;
  close(file);
  return whole;
}

}  // namespace curvescope
