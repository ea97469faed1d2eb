// The part of the double of libcupti that tells of nodes of CUDA graphs: resource callbacks to the subscriber, of the
// kinds that it enabled. A node's handle is its number.
#include <cupti_activity.h>
#include <cupti_callbacks.h>

#include <cstdint>
#include <mutex>
#include <set>

#include "fake_cupti.h"
#include "fake_cupti_emit.h"

namespace {

std::mutex callback_mutex;
CUpti_CallbackFunc callback = nullptr;
void* callback_data = nullptr;
std::set<CUpti_CallbackId> enabled_callbacks;

CUgraphNode handle(std::uint64_t number) { return reinterpret_cast<CUgraphNode>(number); }

}  // namespace

void set_subscriber(CUpti_CallbackFunc function, void* data) {
  const std::lock_guard<std::mutex> lock(callback_mutex);
  callback = function;
  callback_data = data;
  enabled_callbacks.clear();
}

extern "C" {

CUptiResult cuptiEnableCallback(std::uint32_t enable, CUpti_SubscriberHandle, CUpti_CallbackDomain domain,
                                CUpti_CallbackId id) {
  FAKE_FAILS("cuptiEnableCallback");
  if (domain != CUPTI_CB_DOMAIN_RESOURCE) return CUPTI_ERROR_INVALID_PARAMETER;
  const std::lock_guard<std::mutex> lock(callback_mutex);
  if (enable != 0) enabled_callbacks.insert(id);
  if (enable == 0) enabled_callbacks.erase(id);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetGraphNodeId(CUgraphNode node, std::uint64_t* id) {
  FAKE_FAILS("cuptiGetGraphNodeId");
  if (node == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *id = reinterpret_cast<std::uint64_t>(node);
  return CUPTI_SUCCESS;
}

// A node that this thread creates; one that it clones where `original` is not 0.
void fake_graph_node(std::uint64_t node, std::uint64_t original) {
  const CUpti_CallbackId id =
      original == 0 ? CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED : CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED;
  CUpti_CallbackFunc function = nullptr;
  void* data = nullptr;
  {
    const std::lock_guard<std::mutex> lock(callback_mutex);
    if (enabled_callbacks.count(id) != 0) function = callback;
    data = callback_data;
  }
  if (function == nullptr) return;
  CUpti_GraphData graph{};
  graph.node = handle(node);
  graph.originalNode = handle(original);
  CUpti_ResourceData resource{};
  resource.resourceDescriptor = &graph;
  function(data, CUPTI_CB_DOMAIN_RESOURCE, id, &resource);
}

}  // extern "C"
