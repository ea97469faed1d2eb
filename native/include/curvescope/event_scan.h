// The C boundary of the reader of JSON traces: what profiling/readers reaches through profiling/native.py.
#pragma once

#include <cstdint>

#define CURVESCOPE_API extern "C" __attribute__((visibility("default")))

struct CurvescopeEventScan;

// What a column takes of a field.
enum : std::uint8_t {
  kCurvescopeText = 0,    // a string, as its place among the texts
  kCurvescopeJson = 1,    // any value, as the place of its JSON among the texts
  kCurvescopeNumber = 2,  // a whole number
  kCurvescopeTime = 3     // a number of microseconds of either sign, as nanoseconds, exact to the last digit
};

// Prepares for events of complete spans (`ph` is `X`) with these fields, looked up in `args` where `in_args` says so.
// Null where no memory is left.
CURVESCOPE_API CurvescopeEventScan* curvescope_event_scan_open(std::int32_t n_fields, const char* const* names,
                                                               const std::uint8_t* in_args,
                                                               const std::uint8_t* kinds) noexcept;

// Decodes whole events from the front of `data`, which begins inside a list of events: before its first one where
// `first` says so, else where one of them ended. Returns how many bytes they take, up to the end of the last one. What
// follows may be cut off, end the list (`closed`), or be beyond this code: an event that is no strict JSON, or no
// object. `rows` are the events in the columns; `odd` those that hold a value of another kind than their column.
// Negative where no memory is left.
CURVESCOPE_API std::int64_t curvescope_event_scan_next(CurvescopeEventScan* scan, const char* data, std::int64_t size,
                                                       std::uint8_t first, std::int64_t* rows, std::int64_t* odd,
                                                       std::uint8_t* closed) noexcept;

// Columns of the last rows, until the next call: values, and 1 for each that is there and not null.
CURVESCOPE_API const std::int64_t* curvescope_event_scan_values(const CurvescopeEventScan* scan,
                                                                std::int32_t field) noexcept;
CURVESCOPE_API const std::uint8_t* curvescope_event_scan_valid(const CurvescopeEventScan* scan,
                                                               std::int32_t field) noexcept;

// Where the odd events of the last call begin and end in its data, as 2 · odd numbers.
CURVESCOPE_API const std::int64_t* curvescope_event_scan_odd(const CurvescopeEventScan* scan) noexcept;

// How many texts there are since the scan was opened, and the bytes and size of one of them.
CURVESCOPE_API std::int64_t curvescope_event_scan_texts(const CurvescopeEventScan* scan) noexcept;
CURVESCOPE_API const char* curvescope_event_scan_text(const CurvescopeEventScan* scan, std::int64_t place,
                                                      std::int64_t* size) noexcept;

CURVESCOPE_API void curvescope_event_scan_close(CurvescopeEventScan* scan) noexcept;
