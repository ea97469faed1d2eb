// cuDNN: the descriptors of its backend API, by which PyTorch makes convolutions and fused attention, and batch
// normalisation. Recurrent networks, CTC and the spatial transformer are not here; nor are convolutions by the older
// API.
#include <cudnn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "attention.h"
#include "convolutions.h"

namespace card {

namespace {

struct Descriptor;
using Shared = std::shared_ptr<Descriptor>;

// An attribute as it was set: its bytes, or other descriptors.
struct Attribute {
  std::vector<char> bytes;
  std::vector<Shared> others;
  std::int64_t count = 0;
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  std::map<int, Attribute> attributes;
};

// What a handle of the backend API points to: several may share what they describe.
struct Owner {
  Shared described;
};

Owner* owner_of(cudnnBackendDescriptor_t handle) { return static_cast<Owner*>(handle); }

std::size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    default:
      return 4;  // enumerations, float and int32
  }
}

std::vector<std::int64_t> integers(const Shared& from, int which) {
  const auto found = from->attributes.find(which);
  if (found == from->attributes.end()) return {};
  const std::vector<char>& bytes = found->second.bytes;
  std::vector<std::int64_t> values(bytes.size() / sizeof(std::int64_t));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(std::int64_t));
  return values;
}

Shared other(const Shared& from, int which) {
  const auto found = from->attributes.find(which);
  return found == from->attributes.end() || found->second.others.empty() ? nullptr : found->second.others.front();
}

int enumeration(const Shared& from, int which) {
  int value = 0;
  const auto found = from->attributes.find(which);
  if (found != from->attributes.end()) std::memcpy(&value, found->second.bytes.data(), sizeof value);
  return value;
}

void put(const Shared& into, int which, std::int64_t value) {
  Attribute& attribute = into->attributes[which];
  attribute.bytes.resize(sizeof value);
  std::memcpy(attribute.bytes.data(), &value, sizeof value);
  attribute.count = 1;
}

void put(const Shared& into, int which, Shared value) {
  Attribute& attribute = into->attributes[which];
  attribute.others = {std::move(value)};
  attribute.count = 1;
}

// The parts of a convolution of each direction, by the numbers of their attributes.
struct Parts {
  cudnnBackendDescriptorType_t type;
  Direction direction;
  int image, filter, result, how;
};

constexpr Parts kParts[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, Direction::kForward,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, Direction::kData,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, Direction::kFilter,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC},
};

Precision precision_of_tensor(int type) {
  if (type == CUDNN_DATA_DOUBLE) return Precision::kFp64;
  if (type == CUDNN_DATA_HALF) return Precision::kFp16;
  return type == CUDNN_DATA_BFLOAT16 ? Precision::kBf16 : Precision::kFp32;
}

// The operations of a graph; none before they are set.
std::vector<Shared> operations_of(const Shared& graph) {
  const auto found = graph->attributes.find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  return found == graph->attributes.end() ? std::vector<Shared>{} : found->second.others;
}

// The convolution among the operations of a graph; false if it has none, as of what else PyTorch fuses by cuDNN.
bool find_convolution(const Shared& graph, Convolution* out) {
  for (const Shared& operation : operations_of(graph)) {
    for (const Parts& parts : kParts) {
      if (operation->type != parts.type) continue;
      const Shared image = other(operation, parts.image);
      out->direction = parts.direction;
      out->image = integers(image, CUDNN_ATTR_TENSOR_DIMENSIONS);
      out->filter = integers(other(operation, parts.filter), CUDNN_ATTR_TENSOR_DIMENSIONS);
      out->result = integers(other(operation, parts.result), CUDNN_ATTR_TENSOR_DIMENSIONS);
      out->precision = precision_of_tensor(enumeration(image, CUDNN_ATTR_TENSOR_DATA_TYPE));
      const auto strides = integers(image, CUDNN_ATTR_TENSOR_STRIDES);
      out->channels_last = strides.size() > 1 && strides[1] == 1 && out->image[1] > 1;
      return true;
    }
  }
  return false;
}

// Takes the extents of queries [N H S D], and of keys with their number and width in this order or the other.
void take_extents(const Shared& queries, const Shared& keys, std::size_t number_at, Attention* out) {
  const auto q = integers(queries, CUDNN_ATTR_TENSOR_DIMENSIONS), k = integers(keys, CUDNN_ATTR_TENSOR_DIMENSIONS);
  out->batch = static_cast<double>(q.at(0));
  out->heads = static_cast<double>(q.at(1));
  out->queries = static_cast<double>(q.at(2));
  out->width = static_cast<double>(q.at(3));
  out->keys = static_cast<double>(k.at(number_at));
  out->precision = precision_of_tensor(enumeration(queries, CUDNN_ATTR_TENSOR_DATA_TYPE));
}

// Attention is one operation, or in other versions products and what is between them; false if the graph is none.
bool find_attention(const Shared& graph, Attention* out) {
  constexpr int kForwardProducts = 2;
  int products = 0;
  for (const Shared& one : operations_of(graph)) {
    if (one->type == CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR) {
      take_extents(other(one, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC), other(one, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC), 2,
                   out);
      return true;
    }
    if (one->type == CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR) {
      take_extents(other(one, CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC), other(one, CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC), 2,
                   out);
      return out->is_backward = true;
    }
    if (one->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR && ++products == 1) {
      take_extents(other(one, CUDNN_ATTR_OPERATION_MATMUL_ADESC), other(one, CUDNN_ATTR_OPERATION_MATMUL_BDESC), 3,
                   out);
    }
    // Which numbers its rows and columns masks those above the diagonal.
    if (one->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
      const Shared how = other(one, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
      out->is_causal |= enumeration(how, CUDNN_ATTR_POINTWISE_MODE) == CUDNN_POINTWISE_GEN_INDEX;
    }
  }
  out->is_backward = products > kForwardProducts;
  return products >= kForwardProducts;
}

// As cuDNN's documentation has it: a variable with the most MiB that a convolution may take.
std::int64_t most_workspace() {
  const char* mib = std::getenv("CUDNN_CONV_WSCAP_DBG");
  return mib == nullptr ? std::numeric_limits<std::int64_t>::max() : std::atoll(mib) << 20;
}

// The engines that can run a graph, the heuristics' favourite first: cuDNN's are fast in different cases.
std::vector<Engine> engines_of(const Shared& graph) {
  const DeviceFacts& on = *device(current_device()).facts;
  Convolution convolution;
  Attention attention;
  if (find_attention(graph, &attention)) return std::vector<Engine>{Engine{Algorithm::kAttention, false}};
  if (!find_convolution(graph, &convolution)) return {};
  std::vector<Engine> all;
  for (const Algorithm algorithm : {Algorithm::kImplicitGemm, Algorithm::kPrecomputed}) {
    if (convolution.precision == Precision::kFp32 && on.tf32_per_sm > 0) all.push_back({algorithm, true});
  }
  if (is_recorded(convolution, on)) all.push_back({Algorithm::kRecorded, false});
  for (const Algorithm algorithm : {Algorithm::kImplicitGemm, Algorithm::kPrecomputed})
    all.push_back({algorithm, false});
  const auto too_large = [&](const Engine& engine) { return workspace_bytes(convolution, engine) > most_workspace(); };
  all.erase(std::remove_if(all.begin(), all.end(), too_large), all.end());
  return all;
}

std::int64_t number_of(const Engine& engine) { return 2 * static_cast<int>(engine.algorithm) + (engine.tf32 ? 1 : 0); }

Engine engine_of(std::int64_t number) { return {static_cast<Algorithm>(number / 2), number % 2 == 1}; }

// The graph of an engine's configuration.
Shared graph_of(const Shared& configuration, Engine* engine) {
  const Shared chosen = other(configuration, CUDNN_ATTR_ENGINECFG_ENGINE);
  *engine = engine_of(integers(chosen, CUDNN_ATTR_ENGINE_GLOBAL_INDEX).at(0));
  return other(chosen, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
}

Shared graph_of_plan(const Shared& plan, Engine* engine) {
  return graph_of(other(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), engine);
}

std::int64_t workspace_of(const Shared& configuration) {
  Engine engine{};
  Convolution convolution;
  Attention attention;
  const Shared graph = graph_of(configuration, &engine);
  if (find_convolution(graph, &convolution)) return workspace_bytes(convolution, engine);
  return find_attention(graph, &attention) ? workspace_bytes(attention) : 0;
}

// Gives one value.
template <typename Value>
bool give(Value value, std::int64_t* count, void* elements) {
  *count = 1;
  if (elements != nullptr) std::memcpy(elements, &value, sizeof value);
  return true;
}

// Answers of attributes that nobody set; false if there is none.
bool derive(const Shared& from, int which, std::int64_t wanted, std::int64_t* count, void* elements) {
  if (which == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    const Shared graph = other(from, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    const std::vector<Engine> engines = engines_of(graph);
    *count = static_cast<std::int64_t>(engines.size());
    if (elements == nullptr) return true;
    *count = std::min(wanted, *count);
    for (std::int64_t i = 0; i < *count; ++i) {
      const auto engine = std::make_shared<Descriptor>(Descriptor{CUDNN_BACKEND_ENGINE_DESCRIPTOR, {}});
      put(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, number_of(engines[static_cast<std::size_t>(i)]));
      put(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
      put(owner_of(static_cast<cudnnBackendDescriptor_t*>(elements)[i])->described, CUDNN_ATTR_ENGINECFG_ENGINE,
          engine);
    }
    return true;
  }
  if (which == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE || which == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE) {
    const Engine engine = engine_of(integers(from, CUDNN_ATTR_ENGINE_GLOBAL_INDEX).at(0));
    const bool is_noted = which == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && engine.tf32;
    *count = is_noted ? 1 : 0;
    const auto note = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    if (is_noted && elements != nullptr && wanted > 0) std::memcpy(elements, &note, sizeof note);
    return true;
  }
  if (which == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
    return give(workspace_of(other(from, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)), count, elements);
  if (which == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE) return give(workspace_of(from), count, elements);
  if (which == CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED) return give(std::int32_t{0}, count, elements);
  if (which == CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT)
    return give(std::int64_t{2 * (static_cast<int>(Algorithm::kAttention) + 1)}, count, elements);
  return false;
}

struct Dnn {
  cudaStream_t stream = nullptr;
};

Dnn* of(cudnnHandle_t handle) { return reinterpret_cast<Dnn*>(handle); }

// The older API's descriptor of a tensor, as batch normalisation has it.
struct Tensor {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int> dimensions, strides;
};

Tensor* of(cudnnTensorDescriptor_t handle) { return reinterpret_cast<Tensor*>(handle); }

double bytes_of(const Tensor& tensor) {
  double elements = 1;
  for (const int size : tensor.dimensions) elements *= size;
  return elements * element_bytes(precision_of_tensor(tensor.type));
}

// Reads and writes whole tensors; one block for each channel and image of a few.
cudnnStatus_t normalise(cudnnHandle_t handle, const char* name, const Tensor& tensor, double passes) {
  Work work;
  work.name = name;
  work.bytes = passes * bytes_of(tensor);
  work.grid = dim3(static_cast<unsigned int>(std::max(1.0, std::ceil(work.bytes / (512 * 64)))));
  work.block = dim3(512);
  launch_from_library([&] { submit(stream_of(of(handle)->stream), work); });
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

}  // namespace card

extern "C" {

std::size_t cudnnGetVersion() { return CUDNN_VERSION; }

std::size_t cudnnGetCudartVersion() { return CUDART_VERSION; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_OF_THE_VIRTUAL_CARD";
}

void cudnnGetLastErrorString(char* text, std::size_t bytes) {
  if (bytes > 0) std::snprintf(text, bytes, "the virtual card does not have it");
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = reinterpret_cast<cudnnHandle_t>(new card::Dnn);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete card::of(handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  card::of(handle)->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  *stream = card::of(handle)->stream;
  return CUDNN_STATUS_SUCCESS;
}

// The backend API

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* out) {
  *out = new card::Owner{std::make_shared<card::Descriptor>(card::Descriptor{type, {}})};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t handle) {
  delete card::owner_of(handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t) { return CUDNN_STATUS_SUCCESS; }

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t which,
                                       cudnnBackendAttributeType_t type, std::int64_t count, const void* elements) {
  card::Attribute& attribute = card::owner_of(handle)->described->attributes[which];
  attribute = card::Attribute{};
  attribute.count = count;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (std::int64_t i = 0; i < count; ++i)
      attribute.others.push_back(card::owner_of(static_cast<const cudnnBackendDescriptor_t*>(elements)[i])->described);
  } else {
    const auto* bytes = static_cast<const char*>(elements);
    attribute.bytes.assign(bytes, bytes + card::bytes_of(type) * static_cast<std::size_t>(count));
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t which,
                                       cudnnBackendAttributeType_t type, std::int64_t wanted, std::int64_t* count,
                                       void* elements) {
  const card::Shared from = card::owner_of(handle)->described;
  std::int64_t unused = 0;
  if (count == nullptr) count = &unused;
  if (card::derive(from, which, wanted, count, elements)) return CUDNN_STATUS_SUCCESS;
  const auto found = from->attributes.find(which);
  if (found == from->attributes.end()) {
    *count = 0;
    return CUDNN_STATUS_SUCCESS;
  }
  const card::Attribute& attribute = found->second;
  *count = attribute.count;
  const auto given = static_cast<std::size_t>(std::min(wanted, *count));
  if (elements == nullptr) return CUDNN_STATUS_SUCCESS;
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    std::memcpy(elements, attribute.bytes.data(), card::bytes_of(type) * given);
    return CUDNN_STATUS_SUCCESS;
  }
  for (std::size_t i = 0; i < given; ++i)
    card::owner_of(static_cast<cudnnBackendDescriptor_t*>(elements)[i])->described = attribute.others[i];
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t) {
  card::Engine engine{};
  card::Convolution convolution;
  card::Attention attention;
  card::Stream* stream = card::stream_of(card::of(handle)->stream);
  const card::Shared graph = card::graph_of_plan(card::owner_of(plan)->described, &engine);
  if (card::find_attention(graph, &attention)) {
    card::launch_attention(attention, stream);
  } else if (card::find_convolution(graph, &convolution)) {
    card::launch_convolution(convolution, engine, stream);
  } else {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  return CUDNN_STATUS_SUCCESS;
}

// Batch normalisation, by the older API

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* out) {
  *out = reinterpret_cast<cudnnTensorDescriptor_t>(new card::Tensor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t handle) {
  delete card::of(handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t handle, cudnnDataType_t type, int count,
                                         const int* dimensions, const int* strides) {
  *card::of(handle) = {type, {dimensions, dimensions + count}, {strides, strides + count}};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* out) {
  *out = nullptr;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t) { return CUDNN_STATUS_SUCCESS; }

cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t, cudnnBatchNormMode_t, cudnnBatchNormOps_t, const cudnnTensorDescriptor_t,
    const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnActivationDescriptor_t, std::size_t* bytes) {
  *bytes = 0;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t, cudnnBatchNormMode_t, cudnnBatchNormOps_t, const cudnnTensorDescriptor_t,
    const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t, const cudnnActivationDescriptor_t,
    std::size_t* bytes) {
  *bytes = 0;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(cudnnHandle_t, cudnnBatchNormMode_t,
                                                                   cudnnBatchNormOps_t,
                                                                   const cudnnActivationDescriptor_t,
                                                                   const cudnnTensorDescriptor_t, std::size_t* bytes) {
  *bytes = 0;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBatchNormalizationForwardTrainingEx(cudnnHandle_t handle, cudnnBatchNormMode_t, cudnnBatchNormOps_t,
                                                       const void*, const void*, const cudnnTensorDescriptor_t x,
                                                       const void*, const cudnnTensorDescriptor_t, const void*,
                                                       const cudnnTensorDescriptor_t, void*,
                                                       const cudnnTensorDescriptor_t, const void*, const void*, double,
                                                       void*, void*, double, void*, void*, cudnnActivationDescriptor_t,
                                                       void*, std::size_t, void*, std::size_t) {
  return card::normalise(handle, "_ZN5cudnn25bn_fw_tr_1C11_kernel_NCHWIffEEvv", *card::of(x), 3);
}

cudnnStatus_t cudnnBatchNormalizationForwardInference(cudnnHandle_t handle, cudnnBatchNormMode_t, const void*,
                                                      const void*, const cudnnTensorDescriptor_t x, const void*,
                                                      const cudnnTensorDescriptor_t, void*,
                                                      const cudnnTensorDescriptor_t, const void*, const void*,
                                                      const void*, const void*, double) {
  return card::normalise(handle, "_ZN5cudnn26bn_fw_inf_1C11_kernel_NCHWIffEEvv", *card::of(x), 2);
}

cudnnStatus_t cudnnBatchNormalizationBackwardEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t, cudnnBatchNormOps_t, const void*, const void*, const void*, const void*,
    const cudnnTensorDescriptor_t x, const void*, const cudnnTensorDescriptor_t, const void*,
    const cudnnTensorDescriptor_t, const void*, const cudnnTensorDescriptor_t, void*, const cudnnTensorDescriptor_t,
    void*, const cudnnTensorDescriptor_t, const void*, const void*, void*, void*, double, const void*, const void*,
    cudnnActivationDescriptor_t, void*, std::size_t, void*, std::size_t) {
  return card::normalise(handle, "_ZN5cudnn21bn_bw_1C11_kernel_newIfffEEvv", *card::of(x), 5);
}

}  // extern "C"
