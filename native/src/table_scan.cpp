// Reads the columns asked for out of a SQLite table, straight from its b-tree
// (https://www.sqlite.org/fileformat2.html).
//
// SQLite gives a row at a time, and Python makes an object of each value: a third of a million rows a second. A profile
// is read once, in order, whole: walking the leaves and decoding the few columns that matter is ten times as fast.
// Every offset is checked against its page or record: the file may be damaged or made to mislead. Pages are read with
// pread, not mapped: a file that is cut while it is read must not end the process.
#include "curvescope/table_scan.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kHeaderBytes = 100;
constexpr std::uint64_t kAheadPages = 64;  // read at once: a call for every page takes longer than what is in it
constexpr std::size_t kSlackBytes = 8;     // behind what is decoded, so that a number is one load
constexpr std::size_t kDeepest = 40;       // a b-tree of 2^32 pages with two children each is not deeper
constexpr std::uint64_t kLargestRecord = std::uint64_t{1} << 30;  // SQLite's own default limit
constexpr std::uint8_t kInterior = 0x05, kLeaf = 0x0d;

struct Damaged {};
struct OtherType {};
struct Unreadable {};

std::uint32_t big_endian(const std::uint8_t* at, int bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | at[i];
  return value;
}

// A stretch of bytes that is read from its front.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}

  std::size_t size() const { return static_cast<std::size_t>(end_ - at_); }
  const std::uint8_t* data() const { return at_; }

  const std::uint8_t* take(std::uint64_t count) {
    if (count > size()) throw Damaged();
    const std::uint8_t* taken = at_;
    at_ += count;
    return taken;
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int i = 0; i < 9; ++i) {
      const std::uint8_t byte = *take(1);
      if (i == 8) return value << 8 | byte;
      value = value << 7 | (byte & 0x7f);
      if (!(byte & 0x80)) return value;
    }
    return value;
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

// How many bytes a value of each serial type takes.
std::uint64_t length_of(std::uint64_t serial_type) {
  static constexpr std::uint8_t kFixed[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0};
  return serial_type < 12 ? kFixed[serial_type] : (serial_type - 12) / 2;
}

// A value of serial type 1 to 6, 8 or 9. Eight bytes are read whatever its length: `kSlackBytes` lie behind every
// record.
std::int64_t whole_number(std::uint64_t serial_type, const std::uint8_t* at) {
  if (serial_type >= 8) return static_cast<std::int64_t>(serial_type - 8);
  std::uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<std::int64_t>(__builtin_bswap64(value)) >> (64 - 8 * length_of(serial_type));
}

}  // namespace

struct CurvescopeTableScan {
  CurvescopeTableScan(int descriptor, std::vector<std::int32_t> wanted, std::vector<std::uint8_t> text)
      : descriptor_(descriptor), fields_(std::move(wanted)), is_text_(std::move(text)), texts_(fields_.size()) {
    for (const std::int32_t field : fields_) deepest_field_ = field > deepest_field_ ? field : deepest_field_;
    targets_.resize(static_cast<std::size_t>(deepest_field_ + 1));
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (fields_[i] < 0)
        row_id_columns_.push_back(i);
      else
        targets_[static_cast<std::size_t>(fields_[i])].text = is_text_[i] ? &texts_[i] : nullptr;
    }
  }
  ~CurvescopeTableScan() { ::close(descriptor_); }
  CurvescopeTableScan(const CurvescopeTableScan&) = delete;
  CurvescopeTableScan& operator=(const CurvescopeTableScan&) = delete;

  // Whether the header is that of a database this can read.
  bool read_header(std::int64_t root_page) {
    std::uint8_t header[kHeaderBytes];
    struct stat facts{};
    if (::fstat(descriptor_, &facts) != 0 || !read_at(header, sizeof header, 0)) return false;
    if (std::memcmp(header, "SQLite format 3", 16) != 0) return false;
    page_bytes_ = big_endian(header + 16, 2) == 1 ? 65536 : big_endian(header + 16, 2);
    const bool power_of_two = (page_bytes_ & (page_bytes_ - 1)) == 0;
    if (page_bytes_ < 512 || !power_of_two || header[20] > page_bytes_ - 480) return false;
    usable_bytes_ = page_bytes_ - header[20];
    constexpr std::uint32_t kUtf8 = 1;
    if (big_endian(header + 56, 4) != kUtf8) return false;
    pages_ = static_cast<std::uint64_t>(facts.st_size) / page_bytes_;
    descend(static_cast<std::uint64_t>(root_page));
    return true;
  }

  std::int64_t next(std::int64_t max_rows, std::int64_t* const* values, std::uint8_t* const* valid) {
    for (std::string& text : texts_) text.clear();
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (fields_[i] < 0) continue;
      Target& target = targets_[static_cast<std::size_t>(fields_[i])];
      target.values = values[i];
      target.valid = valid[i];
    }
    std::int64_t rows = 0;
    while (rows < max_rows && !path_.empty()) {
      Level& level = path_.back();
      if (level.next_cell > level.cells || (level.leaf && level.next_cell == level.cells)) {
        spare_ = std::move(level.page);
        path_.pop_back();
      } else if (level.leaf) {
        read_row(level, level.next_cell++, rows, values, valid);
        ++rows;
      } else if (level.next_cell == level.cells) {
        ++level.next_cell;
        descend(big_endian(level.page.data() + level.start + 8, 4));
      } else {
        Bytes cell = cell_at(level, level.next_cell++);
        descend(big_endian(cell.take(4), 4));
      }
    }
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (is_text_[i]) values[i][rows] = static_cast<std::int64_t>(texts_[i].size());
    }
    return rows;
  }

  const char* text(std::size_t column) const { return texts_[column].data(); }

 private:
  // A page on the way from the root to the leaf that is being read.
  struct Level {
    std::vector<std::uint8_t> page;
    std::size_t start = 0;  // of its b-tree header: page 1 begins with the file's
    std::uint32_t cells = 0, next_cell = 0;
    bool leaf = false;
  };

  // Where the values of a stored field go; nowhere if it is not asked for.
  struct Target {
    std::int64_t* values = nullptr;
    std::uint8_t* valid = nullptr;
    std::string* text = nullptr;
  };

  bool read_at(std::uint8_t* target, std::size_t size, std::uint64_t offset) const {
    while (size > 0) {
      const ssize_t got = ::pread(descriptor_, target, size, static_cast<off_t>(offset));
      if (got <= 0) return false;
      target += got;
      size -= static_cast<std::size_t>(got);
      offset += static_cast<std::uint64_t>(got);
    }
    return true;
  }

  void read_page(std::uint64_t number, std::vector<std::uint8_t>& page) {
    // Each page belongs to one place of one tree: more visits than pages are a circle.
    if (number == 0 || number > pages_ || ++visits_ > pages_) throw Damaged();
    page.resize(page_bytes_ + kSlackBytes);
    if (number < ahead_first_ || number >= ahead_first_ + ahead_pages_) {
      // Leaves lie in a row, mostly: where one follows soon after the last, those behind it are read along.
      const bool in_a_row = number > last_ && number - last_ <= kAheadPages;
      ahead_first_ = number;
      ahead_pages_ = in_a_row ? std::min(kAheadPages, pages_ - number + 1) : 1;
      ahead_.resize(ahead_pages_ * page_bytes_);
      if (!read_at(ahead_.data(), ahead_.size(), (number - 1) * page_bytes_)) throw Unreadable();
    }
    last_ = number;
    std::memcpy(page.data(), ahead_.data() + (number - ahead_first_) * page_bytes_, page_bytes_);
  }

  void descend(std::uint64_t number) {
    if (path_.size() >= kDeepest) throw Damaged();
    Level level;
    if (!spare_.empty()) {
      level.page = std::move(spare_);
      spare_.clear();
    }
    read_page(number, level.page);
    level.start = number == 1 ? kHeaderBytes : 0;
    const std::uint8_t* header = level.page.data() + level.start;
    if (header[0] != kLeaf && header[0] != kInterior) throw Damaged();
    level.leaf = header[0] == kLeaf;
    level.cells = big_endian(header + 3, 2);
    if (level.start + (level.leaf ? 8 : 12) + 2 * std::size_t{level.cells} > usable_bytes_) throw Damaged();
    path_.push_back(std::move(level));
  }

  Bytes cell_at(const Level& level, std::uint32_t cell) const {
    const std::uint8_t* pointers = level.page.data() + level.start + (level.leaf ? 8 : 12);
    const std::uint32_t offset = big_endian(pointers + 2 * std::size_t{cell}, 2);
    if (offset >= usable_bytes_) throw Damaged();
    return Bytes(level.page.data() + offset, usable_bytes_ - offset);
  }

  void read_row(const Level& level, std::uint32_t cell, std::int64_t row, std::int64_t* const* values,
                std::uint8_t* const* valid) {
    Bytes bytes = cell_at(level, cell);
    const std::uint64_t payload = bytes.varint();
    const std::int64_t row_id = static_cast<std::int64_t>(bytes.varint());
    for (const std::size_t column : row_id_columns_) {
      values[column][row] = row_id;
      valid[column][row] = 1;
    }
    const std::uint64_t most_local = usable_bytes_ - 35;
    if (payload <= most_local) {
      read_record(Bytes(bytes.take(payload), payload), row);
      return;
    }
    if (payload > kLargestRecord) throw Damaged();
    const std::uint64_t least_local = (usable_bytes_ - 12) * 32 / 255 - 23;
    const std::uint64_t fitting = least_local + (payload - least_local) % (usable_bytes_ - 4);
    const std::uint64_t local = fitting <= most_local ? fitting : least_local;
    const std::uint8_t* first = bytes.take(local);
    overflowing_.assign(first, first + local);
    std::uint64_t page = big_endian(bytes.take(4), 4);
    while (overflowing_.size() < payload) {
      read_page(page, overflow_page_);
      const std::uint64_t rest = payload - overflowing_.size();
      const std::uint64_t here = rest < usable_bytes_ - 4 ? rest : usable_bytes_ - 4;
      overflowing_.insert(overflowing_.end(), overflow_page_.data() + 4, overflow_page_.data() + 4 + here);
      page = big_endian(overflow_page_.data(), 4);
    }
    overflowing_.resize(payload + kSlackBytes);
    read_record(Bytes(overflowing_.data(), payload), row);
  }

  void read_record(Bytes record, std::int64_t row) {
    const std::size_t whole = record.size();
    const std::uint64_t header_bytes = record.varint();
    const std::size_t counted = whole - record.size();
    if (header_bytes < counted || header_bytes > whole) throw Damaged();
    const std::uint8_t* type_at = record.take(header_bytes - counted);
    const std::uint8_t* const types_end = record.data();
    const std::uint8_t* at = record.data();
    std::uint64_t left = record.size();
    auto target = targets_.cbegin();
    for (; target != targets_.cend() && type_at != types_end; ++target) {
      std::uint64_t type = *type_at;
      if (type < 0x80) {
        ++type_at;
      } else {
        Bytes types(type_at, static_cast<std::size_t>(types_end - type_at));
        type = types.varint();
        type_at = types.data();
      }
      const std::uint64_t length = length_of(type);
      if (length > left) throw Damaged();
      const std::uint8_t* const value = at;
      at += length;
      left -= length;
      if (target->values == nullptr) continue;
      target->valid[row] = type != 0;
      if (type == 0) {
        set_null(*target, row);
      } else if (target->text != nullptr) {
        if (type < 13 || type % 2 == 0) throw OtherType();
        target->values[row] = static_cast<std::int64_t>(target->text->size());
        target->text->append(reinterpret_cast<const char*>(value), length);
      } else if (type <= 6 || type == 8 || type == 9) {
        target->values[row] = whole_number(type, value);
      } else {
        throw OtherType();
      }
    }
    // Columns that were added after the row was written are not in it.
    for (; target != targets_.cend(); ++target) {
      if (target->values != nullptr) set_null(*target, row);
    }
  }

  static void set_null(const Target& target, std::int64_t row) {
    target.valid[row] = 0;
    target.values[row] = target.text != nullptr ? static_cast<std::int64_t>(target.text->size()) : 0;
  }

  const int descriptor_;
  const std::vector<std::int32_t> fields_;
  const std::vector<std::uint8_t> is_text_;
  std::vector<std::string> texts_;  // of each column, one after the other
  std::vector<std::size_t> row_id_columns_;
  std::vector<Target> targets_;  // by field
  std::int32_t deepest_field_ = -1;
  std::uint64_t page_bytes_ = 0, usable_bytes_ = 0, pages_ = 0, visits_ = 0;
  std::vector<Level> path_;
  std::vector<std::uint8_t> spare_, overflowing_, overflow_page_;
  std::vector<std::uint8_t> ahead_;  // pages from `ahead_first_` on
  std::uint64_t ahead_first_ = 0, ahead_pages_ = 0, last_ = 0;
};

extern "C" {

CurvescopeTableScan* curvescope_table_scan_open(const char* path, std::int64_t root_page, std::int32_t n_fields,
                                                const std::int32_t* fields, const std::uint8_t* is_text) noexcept try {
  const int descriptor = ::open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  auto scan = std::make_unique<CurvescopeTableScan>(descriptor, std::vector<std::int32_t>(fields, fields + n_fields),
                                                    std::vector<std::uint8_t>(is_text, is_text + n_fields));
  return scan->read_header(root_page) ? scan.release() : nullptr;
} catch (...) {
  return nullptr;
}

std::int64_t curvescope_table_scan_next(CurvescopeTableScan* scan, std::int64_t max_rows, std::int64_t* const* values,
                                        std::uint8_t* const* valid) noexcept try {
  return scan->next(max_rows, values, valid);
} catch (const Damaged&) {
  return kCurvescopeScanDamaged;
} catch (const OtherType&) {
  return kCurvescopeScanOtherType;
} catch (...) {
  return kCurvescopeScanUnreadable;
}

const char* curvescope_table_scan_text(const CurvescopeTableScan* scan, std::int32_t column) noexcept {
  return scan->text(static_cast<std::size_t>(column));
}

void curvescope_table_scan_close(CurvescopeTableScan* scan) noexcept { delete scan; }

}  // extern "C"
