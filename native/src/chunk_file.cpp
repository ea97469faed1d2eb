#include "chunk_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "curvescope/collector.h"

namespace curvescope {

bool ChunkFile::create() {
  const std::string path =
      folder_ + "/" + std::to_string(getpid()) + "-" + std::to_string(curvescope_clock_ns()) + ".chunks";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return false;
  close(file);
  path_ = path;
  return true;
}

bool ChunkFile::append(ChunkKind kind, std::int64_t thread, const void* payload, std::size_t bytes) noexcept try {
  if (broken_ || (path_.empty() && !create())) return false;
  // Opened anew for each chunk: a program may close every descriptor it did not open and reuse the numbers.
  const int file = open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) return false;
  ChunkHeader header{kChunkMagic, kChunkVersion, static_cast<std::uint16_t>(kind), bytes, getpid(), thread, 0, 0};
  header.payload_crc = crc32(payload, bytes);
  header.header_crc = crc32(&header, offsetof(ChunkHeader, header_crc));
  const iovec parts[2] = {{&header, sizeof(header)}, {const_cast<void*>(payload), bytes}};
  struct stat before{};
  const bool known = fstat(file, &before) == 0;
  const bool whole = known && writev(file, parts, 2) == static_cast<ssize_t>(sizeof(header) + bytes);
  // A torn chunk would hide the next from the reader, so it is cut off again.
  if (known && !whole) broken_ = ftruncate(file, before.st_size) != 0;
  close(file);
  return whole;
} catch (...) {
  return false;
}

}  // namespace curvescope
