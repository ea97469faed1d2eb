// Takes the events of all threads of this process to its chunk file. Nothing here throws, exits or waits for the disk
// in the user's threads, except the flush at exit, which waits at most two seconds.
#pragma once

#include <string_view>

#include "chunk_format.h"

namespace curvescope::recorder {

// Starts recording into the folder; later calls do nothing. False where it cannot.
bool start(const char* folder) noexcept;

// The id of the text; Names::kDropped, counted, where there is no room for it.
std::uint32_t intern(std::string_view text) noexcept;

void record(const Event& event) noexcept;

}  // namespace curvescope::recorder
