// Writes recorded data of this process to its chunk file. Nothing here throws, exits or waits for the disk in the
// user's threads, except the flush at exit, which waits at most two seconds, and an explicit end of the recording.
#pragma once

#include <string_view>

#include "chunk_format.h"
#include "shared_memory.h"

namespace curvescope::recorder {

// Starts recording into the folder. Returns false on failure, or if this process is being recorded already.
bool start(const char* folder) noexcept;

// The same for the folder in the environment; returns true if it is being recorded already.
bool start_injected() noexcept;

// Starts CUPTI for the recording, once.
void start_cupti() noexcept;

// Writes all data and ends the recording; later events are not recorded.
void stop() noexcept;

// Pauses and resumes the collection of GPU work, see activity.h; false if there is none, or it cannot.
bool pause_cupti() noexcept;
bool resume_cupti() noexcept;

// Whether recording was ever started in this process.
bool is_prepared() noexcept;

// The id of the text; Names::kDropped if there is no room for it, which is counted.
std::uint32_t intern(std::string_view text) noexcept;

// Returns false if the event was dropped, which is counted. The first event of a thread takes the time at which there
// is room for it.
bool record(const Event& event) noexcept;

// Stores the name of a number: a category of a domain, or a thread id.
void name_number(const char* what, std::uint32_t domain, std::uint64_t number, std::uint32_t name) noexcept;

// The counts of this process that outlive it; null where it has none.
SharedCounts* shared_counts() noexcept;

// The writer has something to do.
void wake() noexcept;

}  // namespace curvescope::recorder
