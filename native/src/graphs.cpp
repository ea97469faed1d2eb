#include "graphs.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

#include "columns.h"
#include "curvescope/collector.h"

namespace curvescope::graphs {
namespace {

using Row = std::array<std::uint64_t, 4>;  // node, the node that it was cloned from or 0, time, thread

struct Nodes {
  std::mutex mutex;
  std::vector<Row> waiting;
  std::uint64_t lost = 0;  // without memory
};
// Never freed: a callback may still run. Null in a child without memory.
std::atomic<Nodes*> nodes{new (std::nothrow) Nodes};

}  // namespace

void CUPTIAPI note_node(void* user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (domain != CUPTI_CB_DOMAIN_RESOURCE || data == nullptr) return;
  const bool is_clone = id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED;
  if (!is_clone && id != CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) return;
  const auto time_ns = static_cast<std::uint64_t>(curvescope_clock_ns());
  const auto* graph =
      static_cast<const CUpti_GraphData*>(static_cast<const CUpti_ResourceData*>(data)->resourceDescriptor);
  const auto& api = *static_cast<const CuptiApi*>(user);
  std::uint64_t node = 0;
  std::uint64_t original = 0;
  if (graph == nullptr || api.GetGraphNodeId(graph->node, &node) != CUPTI_SUCCESS) return;
  if (is_clone && api.GetGraphNodeId(graph->originalNode, &original) != CUPTI_SUCCESS) return;
  Nodes* all = nodes;
  if (all == nullptr) return;
  const std::lock_guard<std::mutex> lock(all->mutex);
  try {
    all->waiting.push_back({node, original, time_ns, static_cast<std::uint64_t>(syscall(SYS_gettid))});
  } catch (...) {
    ++all->lost;
  }
}

CUptiResult watch(const CuptiApi& api, CUpti_SubscriberHandle subscriber) noexcept {
  if (api.EnableCallback == nullptr || api.GetGraphNodeId == nullptr) return CUPTI_ERROR_NOT_SUPPORTED;
  for (const CUpti_CallbackId id : {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED}) {
    const CUptiResult result = api.EnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, id);
    if (result != CUPTI_SUCCESS) return result;
  }
  return CUPTI_SUCCESS;
}

void write(ChunkWriter* writer) noexcept {
  Nodes* all = nodes;
  if (all == nullptr) return;
  std::vector<Row> taken;
  std::uint64_t lost = 0;
  {
    const std::lock_guard<std::mutex> lock(all->mutex);
    taken.swap(all->waiting);
    std::swap(lost, all->lost);
  }
  if (lost != 0) writer->lose("graph_nodes", lost);
  if (taken.empty()) return;
  try {
    Columns table("graph_nodes", {{"node"}, {"original"}, {"time_ns"}, {"thread"}});
    for (const Row& row : taken) {
      if (table.full()) writer->write_table(&table);
      table.append(row);
    }
    writer->write_table(&table);
  } catch (...) {
    writer->lose("graph_nodes", taken.size());
  }
}

void abandon() noexcept { nodes = new (std::nothrow) Nodes; }

}  // namespace curvescope::graphs
