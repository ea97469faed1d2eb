// What the parts of the test double of libcupti share.
#pragma once

#include <cupti_callbacks.h>
#include <cupti_result.h>

#include <cstddef>
#include <cstdint>

constexpr std::uint32_t kFakeKinds = 64;

// The version of CUPTI that it plays.
std::uint32_t fake_version();

// What the call must fail with; CUPTI_SUCCESS if it need not.
CUptiResult fails(const char* function);

#define FAKE_FAILS(function)                                                 \
  if (const CUptiResult failed = fails(function); failed != CUPTI_SUCCESS) { \
    return failed;                                                           \
  }

bool any_enabled();

// Who gets callbacks from now on; null: nobody.
void set_subscriber(CUpti_CallbackFunc function, void* data);

// How often a client began, where no kind was enabled.
int count_sessions();

// Whether this version has records of the kind.
bool has_record(std::uint32_t kind);

// Returns buffers to the client, those with unfinished records only if forced.
void flush_buffers(bool forced);

// Called before buffers are flushed; its argument tells whether the flush is forced.
void set_before_flush(void (*function)(bool forced));

// What is added to a device's times, by a fault of CUPTI that the environment may ask for.
std::uint64_t fake_time_error();

// Emits the ids that this thread was given for what it does now (cuptiActivityPushExternalCorrelationId).
void emit_external_correlation(std::uint32_t correlation_id);

// Whether a client asked for records of that kind.
bool is_enabled(int kind);

// Whether a client asked for that kind, or for this one call of it.
bool is_call_enabled(int kind, std::uint32_t id);

// A copy of the name that outlives every exit handler, as CUPTI's names do: it is never freed.
const char* keep(const char* name);

// Puts a record into the thread's buffer, cut to this version's size of its kind. What a reader takes from behind it is
// another record's, or nobody's.
void emit(std::uint32_t kind, const void* record, std::size_t known_bytes);

// The same for a finished kernel, without the rest: costs little, for measures of the collector's cost.
void emit_kernel_fast(const void* record, std::size_t known_bytes);

template <typename Record>
void emit(const Record& record) {
  emit(record.kind, &record, sizeof(record));
}
