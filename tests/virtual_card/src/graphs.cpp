// CUDA graphs: what streams capture, and its launches. A node waits for those before it in its stream, and for those of
// other streams by events.
#include <cupti_activity.h>
#include <cupti_runtime_cbid.h>

#include <algorithm>

#include "../../native/fake_cupti.h"
#include "card.h"

namespace card {

struct Node {
  std::uint64_t id;  // as CUPTI numbers it
  Work work;
  std::vector<std::size_t> after;  // indices of the nodes that it waits for
};

struct Graph {
  std::uint32_t id;
  std::vector<Node> nodes;
};

namespace {

Graph* of(cudaGraph_t graph) { return reinterpret_cast<Graph*>(graph); }

Graph* of(cudaGraphExec_t graph) { return reinterpret_cast<Graph*>(graph); }

std::uint32_t next_graph() {
  static std::uint32_t last = 0;
  return ++last;
}

std::uint64_t next_node() {
  static std::uint64_t last = 0;
  return ++last;
}

// The nodes are new ones, of which CUPTI tells where they come from.
Graph* clone(const Graph& from) {
  auto* made = new Graph{next_graph(), from.nodes};
  for (Node& node : made->nodes) {
    const std::uint64_t original = node.id;
    node.id = next_node();
    fake_graph_node(node.id, original);
  }
  return made;
}

}  // namespace

struct Capture {
  unsigned long long id;
  Graph* graph;
  std::map<Stream*, std::vector<std::size_t>> last;  // by stream that takes part: nodes that the next one waits for
};

void capture_work(Stream* stream, const Work& work) {
  LOCK();
  Capture& capture = *stream->capture;
  auto& last = capture.last[stream];
  capture.graph->nodes.push_back({next_node(), work, last});
  last = {capture.graph->nodes.size() - 1};
  fake_graph_node(capture.graph->nodes.back().id, 0);
}

void capture_event(Stream* stream, Event* event) {
  event->capture = stream->capture;
  event->nodes = stream->capture->last[stream];
}

// A stream that waits for an event of a capture takes part in it.
void capture_wait(Stream* stream, const Event& event) {
  if (event.capture == nullptr) return;
  stream->capture = event.capture;
  auto& last = event.capture->last[stream];
  last.insert(last.end(), event.nodes.begin(), event.nodes.end());
}

namespace {

void launch_graph(const Graph& graph, Stream* stream) {
  LOCK();
  const Costs& costs = config().costs;
  const Ns earliest = std::max(stream->ready, now() + static_cast<Ns>(costs.start_ns));
  std::vector<Ns> ends;
  Ns last = earliest;
  for (const Node& node : graph.nodes) {
    Ns start = earliest;
    for (const std::size_t before : node.after) start = std::max(start, ends[before] + static_cast<Ns>(costs.node_ns));
    ends.push_back(place(stream, node.work, start, graph.id, node.id).end);
    last = std::max(last, ends.back());
  }
  stream->ready = last;
  stream->queued.push_back(last);
}

cudaError_t end_capture(Stream* stream, cudaGraph_t* out) {
  LOCK();
  Capture* capture = stream->capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  *out = reinterpret_cast<cudaGraph_t>(capture->graph);
  for (auto& [member, last] : capture->last) member->capture = nullptr;
  delete capture;
  return cudaSuccess;
}

}  // namespace

}  // namespace card

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  CALL(cudaStreamBeginCapture_v10000);
  LOCK();
  static unsigned long long captures = 0;
  card::Stream* begins = card::stream_of(stream);
  if (begins == &begins->device->legacy) return call.ends(cudaErrorStreamCaptureUnsupported);
  begins->capture = new card::Capture{++captures, new card::Graph{card::next_graph(), {}}, {}};
  begins->capture->last[begins] = {};
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  CALL(cudaStreamEndCapture_v10000);
  return call.ends(card::end_capture(card::stream_of(stream), graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const bool captures = card::stream_of(stream)->capture != nullptr;
  *status = captures ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     std::size_t* count) {
  const card::Capture* capture = card::stream_of(stream)->capture;
  cudaStreamIsCapturing(stream, status);
  if (id != nullptr) *id = capture == nullptr ? 0 : capture->id;
  if (graph != nullptr) *graph = capture == nullptr ? nullptr : reinterpret_cast<cudaGraph_t>(capture->graph);
  if (nodes != nullptr) *nodes = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  CALL(cudaGraphInstantiateWithFlags_v11040, card::config().costs.allocation_ns);
  LOCK();
  *out = reinterpret_cast<cudaGraphExec_t>(card::clone(*card::of(graph)));
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  CALL(cudaGraphLaunch_v10000, card::config().costs.launch_ns);
  card::launch_graph(*card::of(graph), card::stream_of(stream));
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  const auto& all = card::of(graph)->nodes;
  for (std::size_t i = 0; nodes != nullptr && i < std::min(*count, all.size()); ++i)
    nodes[i] = reinterpret_cast<cudaGraphNode_t>(all[i].id);
  *count = all.size();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete card::of(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete card::of(graph);
  return cudaSuccess;
}

// What a graph keeps alive stays alive: the card frees none of it.
cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* kept, cudaHostFn_t, unsigned int, unsigned int) {
  *object = static_cast<cudaUserObject_t>(kept);
  return cudaSuccess;
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t, unsigned int) { return cudaSuccess; }

cudaError_t cudaGraphRetainUserObject(cudaGraph_t, cudaUserObject_t, unsigned int, unsigned int) { return cudaSuccess; }

}  // extern "C"
