// Takes what is recorded in this process to its chunk file. Nothing here throws, exits or waits for the disk in the
// user's threads, except the flush at exit, which waits at most two seconds, and the end of a recording asked for.
#pragma once

#include <string_view>

#include "chunk_format.h"
#include "shared_counts.h"

namespace curvescope::recorder {

// Starts recording into the folder. False where it cannot, or where this process is being recorded already.
bool start(const char* folder) noexcept;

// The same for the folder that the environment names; true where that is being recorded already.
bool start_injected() noexcept;

// Starts CUPTI for the recording, once.
void start_cupti() noexcept;

// Writes everything and ends the recording; what comes later is not recorded.
void stop() noexcept;

// Whether recording was ever started in this process.
bool is_prepared() noexcept;

// The id of the text; Names::kDropped, counted, where there is no room for it.
std::uint32_t intern(std::string_view text) noexcept;

// False where the event was dropped, and counted.
bool record(const Event& event) noexcept;

// Says what a number stands for: a category of a domain, a thread's id.
void name_number(const char* what, std::uint32_t domain, std::uint64_t number, std::uint32_t name) noexcept;

// The counts of this process that outlive it; null where it has none.
SharedCounts* shared_counts() noexcept;

// The writer has something to do.
void wake() noexcept;

}  // namespace curvescope::recorder
