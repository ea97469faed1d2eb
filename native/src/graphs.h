// Nodes of CUDA graphs: where each was captured, and which node each clone was made of. A launch of a graph replays the
// clones that its instantiation made, so that kernels name nodes of which only the originals were seen under a layer.
#pragma once

#include "chunk_writer.h"
#include "cupti_api.h"

namespace curvescope::graphs {

// The subscriber's callback, on the user's threads; its first argument is the CuptiApi. It must not throw, and is
// called while a thread captures or instantiates a graph.
void CUPTIAPI note_node(void* api, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data);

// Requests the callbacks; the result of the first call that failed. Unsubscribing ends them.
CUptiResult watch(const CuptiApi& api, CUpti_SubscriberHandle subscriber) noexcept;

// In the writer: writes the nodes so far to the table `graph_nodes`.
void write(ChunkWriter* writer) noexcept;

// In a forked child: forgets the parent's nodes, whose lock another thread may have held.
void abandon() noexcept;

}  // namespace curvescope::graphs
