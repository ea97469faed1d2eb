// The C boundary of the reader of SQLite tables: what profiling/readers reaches through profiling/native.py.
#pragma once

#include <cstdint>

#define CURVESCOPE_API extern "C" __attribute__((visibility("default")))

struct CurvescopeTableScan;

// What a scan returns instead of a number of rows.
enum : std::int64_t {
  kCurvescopeScanDamaged = -1,    // a page, cell or record does not hold what the format demands
  kCurvescopeScanOtherType = -2,  // a value is neither null nor of the kind asked for
  kCurvescopeScanUnreadable = -3  // the file cannot be read, or no memory is left
};

// Opens the table whose b-tree begins at `root_page`. `fields` are places in the stored records, -1 for the row id;
// `is_text` says of each whether text is asked for, else whole numbers. Null where the file is no database of UTF-8
// text. Nothing is locked or written.
CURVESCOPE_API CurvescopeTableScan* curvescope_table_scan_open(const char* path, std::int64_t root_page,
                                                               std::int32_t n_fields, const std::int32_t* fields,
                                                               const std::uint8_t* is_text) noexcept;

// Reads up to `max_rows` rows in the order of their ids; 0 at the end. For a number column `values[i]` takes max_rows
// numbers; for a text column max_rows + 1 offsets into its bytes. `valid[i]` takes max_rows bytes, 0 for null.
CURVESCOPE_API std::int64_t curvescope_table_scan_next(CurvescopeTableScan* scan, std::int64_t max_rows,
                                                       std::int64_t* const* values,
                                                       std::uint8_t* const* valid) noexcept;

// The bytes of a text column of the last rows read; they last until the next call.
CURVESCOPE_API const char* curvescope_table_scan_text(const CurvescopeTableScan* scan, std::int32_t column) noexcept;

CURVESCOPE_API void curvescope_table_scan_close(CurvescopeTableScan* scan) noexcept;
