// Writes the chunks of one recording of this process: each chunk after its strings, and counts lost data.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "chunk_file.h"
#include "columns.h"
#include "event_ring.h"
#include "names.h"

namespace curvescope {

class ChunkWriter {
 public:
  ChunkWriter(const std::string& folder, Names* names) : file_(folder), names_(names) {}

  // All return false if the write failed or no memory was left.
  bool write_events(const EventRing& ring, const EventRing::Piece& piece) noexcept;
  bool write_numbers(std::uint64_t first, const std::vector<Number>& numbers) noexcept;
  bool write_lost(const LostCounts& lost) noexcept;
  bool write_raw(const void* payload, std::size_t bytes) noexcept;

  // Writes the rows and clears them; rows that could not be written are counted as lost by the table's name.
  void write_table(Columns* table) noexcept;

  // Counts lost things by name; written with the next call of write_losses.
  void lose(const char* what, std::uint64_t count) noexcept;
  void write_losses() noexcept;
  // Counted, and not on the disk yet.
  bool owes_losses() const noexcept { return !lost_.empty(); }
  std::uint64_t unsaid_losses() const noexcept;

  Names* names() noexcept { return names_; }
  std::int64_t started_ns() const noexcept { return file_.started_ns(); }

 private:
  bool write_strings() noexcept;

  ChunkFile file_;
  Names* names_;
  std::uint32_t strings_written_ = 0;
  std::string payload_;
  std::map<std::string, std::uint64_t> lost_;
};

}  // namespace curvescope
