// CUPTI's activity records of this process: asked for, taken over from the user's threads, and read in the writer.
#pragma once

#include "chunk_writer.h"

namespace curvescope::activity {

// Looks for libcupti and starts it. Whatever happens is told by the table `facts`; the process runs on undisturbed.
void start(Names* names) noexcept;

// In the writer: everything that CUPTI has handed over goes to disk, and now and then the rest is asked for.
void drain(ChunkWriter* writer) noexcept;

// At exit, before anything else: the writer leaves CUPTI to the exiting thread, after the buffer it is in.
void yield_to_exit() noexcept;

// At exit, where the writer did not come to an end: nothing of CUPTI is called again, for its library goes next.
void give_up() noexcept;

// At exit: asks for everything, finished or not, writes it, and calls nothing of CUPTI again.
void finish(ChunkWriter* writer) noexcept;

// Waits for the device, writes everything and ends collecting; a later start may begin anew.
void stop(ChunkWriter* writer) noexcept;

// In a forked child, where CUDA and its tools are dead: nothing of CUPTI may be called again.
void abandon() noexcept;

}  // namespace curvescope::activity
