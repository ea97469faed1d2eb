// What the test double of libcupti has between its protocol and its records.
#pragma once

#include <cstddef>
#include <cstdint>

// Whether a client asked for records of that kind.
bool is_enabled(int kind);

// Whether a client asked for that kind, or for this one call of it.
bool is_call_enabled(int kind, std::uint32_t id);

// A copy of the name that outlives every exit handler, as CUPTI's names do: it is never freed.
const char* keep(const char* name);

// Puts a record into the thread's buffer, cut to this version's size of its kind. What a reader takes from behind it is
// another record's, or nobody's.
void emit(std::uint32_t kind, const void* record, std::size_t known_bytes);

template <typename Record>
void emit(const Record& record) {
  emit(record.kind, &record, sizeof(record));
}
