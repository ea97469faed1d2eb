#include "chunk_writer.h"

namespace curvescope {

bool ChunkWriter::write_strings() noexcept try {
  if (names_->size() == strings_written_) return true;
  std::string texts;
  const std::uint32_t next = names_->append_since(strings_written_, &texts);
  if (!texts.empty() && !file_.append(ChunkKind::kStrings, strings_written_, {texts.data(), texts.size()}))
    return false;
  strings_written_ = next;
  return true;
} catch (...) {
  return false;
}

bool ChunkWriter::write_events(const EventRing& ring, const EventRing::Piece& piece) noexcept {
  const EventsHeader header{ring.id(), ring.thread()};
  return write_strings() && file_.append(ChunkKind::kEvents, piece.first, {&header, sizeof(header)},
                                         {piece.events, piece.count * sizeof(Event)});
}

bool ChunkWriter::write_numbers(std::uint64_t first, const std::vector<Number>& numbers) noexcept {
  return write_strings() && file_.append(ChunkKind::kNumbers, first, {numbers.data(), numbers.size() * sizeof(Number)});
}

bool ChunkWriter::write_lost(const LostCounts& lost) noexcept {
  return file_.append(ChunkKind::kLost, 0, {&lost, sizeof(lost)});
}

bool ChunkWriter::write_raw(const void* payload, std::size_t bytes) noexcept {
  return file_.append(ChunkKind::kRaw, 0, {payload, bytes});
}

void ChunkWriter::write_table(Columns* table) noexcept {
  if (table->rows() == 0) return;
  bool written = false;
  try {
    table->encode(names_, &payload_);
    written = write_strings() && file_.append(ChunkKind::kTable, 0, {payload_.data(), payload_.size()});
  } catch (...) {
    written = false;
  }
  if (!written) lose(table->table(), table->rows());
  table->clear();
}

void ChunkWriter::lose(const char* what, std::uint64_t count) noexcept try { lost_[what] += count; } catch (...) {
  // No memory even to count in.
}

std::uint64_t ChunkWriter::unsaid_losses() const noexcept {
  std::uint64_t total = 0;
  for (const auto& [what, count] : lost_) total += count;
  return total;
}

void ChunkWriter::write_losses() noexcept try {
  if (lost_.empty()) return;
  Columns table("lost", {{"what", true}, {"count"}});
  for (const auto& [what, count] : lost_) {
    if (!table.full()) table.append(std::array<std::uint64_t, 2>{names_->intern(what), count});
  }
  table.encode(names_, &payload_);
  if (write_strings() && file_.append(ChunkKind::kTable, 0, {payload_.data(), payload_.size()})) lost_.clear();
} catch (...) {
  // They stay counted for the next time.
}

}  // namespace curvescope
