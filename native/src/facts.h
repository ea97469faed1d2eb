// What is known of the recording of GPU work: the table `facts` of keys and values, e.g. why nothing is recorded.
#pragma once

#include <string>

#include "chunk_writer.h"

namespace curvescope::facts {

// Makes the first fact possible; facts before it are dropped.
void prepare();

void add(const char* key, const std::string& value);

// Writes the facts that were added since the last call.
void write(ChunkWriter* writer) noexcept;

// In a forked child: drops the parent's facts, whose lock another of its threads may have held.
void abandon() noexcept;

}  // namespace curvescope::facts
