// CUPTI's activity records of this process: requested, received on the user's threads, and parsed in the writer thread.
#pragma once

#include "chunk_writer.h"

namespace curvescope::activity {

// Finds libcupti and starts it. The table `facts` records the outcome; on failure the process continues undisturbed.
void start(Names* names) noexcept;

// In the writer: writes all completed buffers to disk, and flushes CUPTI from time to time.
void drain(ChunkWriter* writer) noexcept;

// In the writer, after its losses are written: buffers of which something was lost are saved as far as they can be.
void settle(const ChunkWriter* writer) noexcept;

// At exit, first: the writer finishes its current buffer and leaves CUPTI to the exiting thread.
void yield_to_exit() noexcept;

// At exit, if the writer did not finish: CUPTI is not called again, because its library is unloaded next.
void give_up() noexcept;

// At exit: requests all records, finished or not, writes them, and does not call CUPTI again. In the last exit handler,
// behind CUPTI's own, buffers that did not come back and hold no GPU work no longer count as unsaved.
void finish(ChunkWriter* writer, bool last) noexcept;

// Waits for the device, writes all records and stops collecting; a later start may collect again.
void stop(ChunkWriter* writer) noexcept;

// Lets another client of CUPTI in, of which the caller knows: waits for the device, writes all records and stops
// collecting, until it resumes. False if nothing is collected.
bool pause(ChunkWriter* writer) noexcept;
bool resume() noexcept;

// Whether a start goes on where another client of CUPTI is subscribed, which the caller knows to be idle.
void share(bool other_is_idle) noexcept;

// In a forked child, where CUDA and its tools do not work: CUPTI must not be called again.
void abandon() noexcept;

}  // namespace curvescope::activity
