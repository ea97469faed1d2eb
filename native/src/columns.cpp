#include "columns.h"

#include <algorithm>

namespace curvescope {

namespace {

std::uint16_t width_of(std::uint64_t span) noexcept {
  if (span == 0) return 0;
  if (span <= 0xFFU) return 1;
  if (span <= 0xFFFFU) return 2;
  return span <= 0xFFFFFFFFU ? 4 : 8;
}

template <typename Stored>
void store(const std::uint64_t* values, std::size_t rows, std::uint64_t base, char* to) noexcept {
  for (std::size_t i = 0; i < rows; ++i) {
    const auto stored = static_cast<Stored>(values[i] - base);
    std::memcpy(to + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

}  // namespace

void Columns::encode(Names* names, std::string* payload) const {
  const TableHeader table{names->intern(table_), static_cast<std::uint32_t>(rows_),
                          static_cast<std::uint32_t>(columns_.size()), 0};
  std::vector<ColumnHeader> headers;
  headers.reserve(columns_.size());
  std::size_t bytes = sizeof(table) + columns_.size() * sizeof(ColumnHeader);
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const std::uint64_t* values = &values_[c * kRows];
    std::uint64_t differing = 0;  // most columns of most chunks hold one value, which this finds fastest
    for (std::size_t i = 0; i < rows_; ++i) differing |= values[i] ^ values[0];
    std::uint64_t least = rows_ == 0 ? 0 : values[0];
    std::uint64_t most = least;
    if (differing != 0) {
      for (std::size_t i = 0; i < rows_; ++i) {
        least = std::min(least, values[i]);
        most = std::max(most, values[i]);
      }
    }
    const std::uint16_t width = width_of(most - least);
    headers.push_back({names->intern(columns_[c].name), static_cast<std::uint16_t>(columns_[c].is_text), width, least});
    bytes += (rows_ * width + 7) / 8 * 8;
  }
  payload->assign(bytes, '\0');
  char* to = payload->data();
  std::memcpy(to, &table, sizeof(table));
  to += sizeof(table);
  std::memcpy(to, headers.data(), headers.size() * sizeof(ColumnHeader));
  to += headers.size() * sizeof(ColumnHeader);
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const std::uint64_t* values = &values_[c * kRows];
    const ColumnHeader& header = headers[c];
    if (header.width == 1) store<std::uint8_t>(values, rows_, header.base, to);
    if (header.width == 2) store<std::uint16_t>(values, rows_, header.base, to);
    if (header.width == 4) store<std::uint32_t>(values, rows_, header.base, to);
    if (header.width == 8) store<std::uint64_t>(values, rows_, header.base, to);
    to += (rows_ * header.width + 7) / 8 * 8;
  }
}

}  // namespace curvescope
