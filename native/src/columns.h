// Rows of one table before they are written, stored by column.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "chunk_format.h"
#include "names.h"

namespace curvescope {

class Columns {
 public:
  static constexpr std::size_t kRows = 4096;  // for kernels 600 KiB, which fits the L2 cache of a core

  struct Column {
    const char* name;
    bool is_text = false;  // its values are string ids
  };

  Columns(const char* table, std::vector<Column> columns)
      : table_(table), columns_(std::move(columns)), values_(new std::uint64_t[columns_.size() * kRows]) {}

  const char* table() const noexcept { return table_; }
  std::size_t rows() const noexcept { return rows_; }
  bool full() const noexcept { return rows_ == kRows; }
  void clear() noexcept { rows_ = 0; }

  // One value per column, in their order. The table must not be full.
  template <std::size_t N>
  void append(const std::array<std::uint64_t, N>& row) noexcept {
    for (std::size_t column = 0; column < N; ++column) values_[column * kRows + rows_] = row[column];
    ++rows_;
  }

  // The payload of a kTable chunk: each column as narrow as its values allow. May throw std::bad_alloc.
  void encode(Names* names, std::string* payload) const;

 private:
  const char* table_;
  std::vector<Column> columns_;
  std::unique_ptr<std::uint64_t[]> values_;
  std::size_t rows_ = 0;
};

}  // namespace curvescope
