// NCCL: collectives as kernels of one rank, which take the time of their bytes on a link and wait for no other rank.
// Results need not be right: each rank takes its own data for that of all. The header in NVIDIA's wheel needs others
// that no wheel has, so the types stand here as its documentation gives them.
#include <cstring>
#include <string>

#include "../../native/fake_cupti_emit.h"
#include "card.h"

namespace card {

namespace {

enum NcclReturn { kNcclSuccess = 0 };
enum DataType { kInt8 = 0, kUint8 = 1, kInt64 = 4, kUint64 = 5, kFloat16 = 6, kFloat64 = 8, kBfloat16 = 9 };
constexpr int kNcclVersion = 23'007;

struct UniqueId {
  char bytes[128];
};

struct Communicator {
  int ranks, rank;
};

Communicator* of(void* handle) { return static_cast<Communicator*>(handle); }

std::size_t bytes_of(std::size_t count, int type) {
  switch (type) {
    case kInt8:
    case kUint8:
      return count;
    case kFloat16:
    case kBfloat16:
      return 2 * count;
    case kInt64:
    case kUint64:
    case kFloat64:
      return 8 * count;
    default:
      return 4 * count;
  }
}

// A ring moves what each of the others has, for a reduction and back for an all-reduce.
void run(const char* what, const Communicator& on, double bytes, int ways, cudaStream_t handle) {
  Stream* stream = stream_of(handle);
  const double others = static_cast<double>(on.ranks - 1) / on.ranks;
  const double ns = ways * others * bytes / config().costs.link_bytes_per_s * 1e9;
  const std::string name = std::string("ncclDevKernel_") + what + "_RING_LL";
  Work work;
  work.name = keep(("_Z" + std::to_string(name.size()) + name + "24ncclDevKernelArgsStorageILm4096EE").c_str());
  work.grid = dim3(24);
  work.block = dim3(544);
  work.registers = 96;
  work.cycles = ns * stream->device->facts->clock_hz / 1e9;
  launch_from_library([&] { submit(stream, work); });
}

}  // namespace

}  // namespace card

using card::kNcclSuccess;
using NcclReturn = card::NcclReturn;

extern "C" {

NcclReturn ncclGetVersion(int* version) {
  *version = card::kNcclVersion;
  return kNcclSuccess;
}

const char* ncclGetErrorString(NcclReturn result) {
  return result == kNcclSuccess ? "no error" : "an error of the virtual card";
}

const char* ncclGetLastError(void*) { return ""; }

NcclReturn ncclGetUniqueId(card::UniqueId* id) {
  std::memset(id, 1, sizeof *id);
  return kNcclSuccess;
}

NcclReturn ncclCommInitRankConfig(void** made, int ranks, card::UniqueId, int rank, void*) {
  card::open_context(card::current_device());
  *made = new card::Communicator{ranks, rank};
  return kNcclSuccess;
}

NcclReturn ncclCommInitRank(void** made, int ranks, card::UniqueId id, int rank) {
  return ncclCommInitRankConfig(made, ranks, id, rank, nullptr);
}

NcclReturn ncclCommFinalize(void*) { return kNcclSuccess; }

NcclReturn ncclCommDestroy(void* handle) {
  delete card::of(handle);
  return kNcclSuccess;
}

NcclReturn ncclCommAbort(void* handle) { return ncclCommDestroy(handle); }

NcclReturn ncclCommGetAsyncError(void*, NcclReturn* error) {
  *error = kNcclSuccess;
  return kNcclSuccess;
}

NcclReturn ncclCommCount(void* handle, int* ranks) {
  *ranks = card::of(handle)->ranks;
  return kNcclSuccess;
}

NcclReturn ncclCommUserRank(void* handle, int* rank) {
  *rank = card::of(handle)->rank;
  return kNcclSuccess;
}

NcclReturn ncclGroupStart() { return kNcclSuccess; }
NcclReturn ncclGroupEnd() { return kNcclSuccess; }

NcclReturn ncclAllReduce(const void* from, void* to, std::size_t count, int type, int, void* handle,
                         cudaStream_t stream) {
  const std::size_t bytes = card::bytes_of(count, type);
  if (from != to) std::memmove(to, from, bytes);
  card::run("AllReduce_Sum_f32", *card::of(handle), static_cast<double>(bytes), 2, stream);
  return kNcclSuccess;
}

NcclReturn ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, void* handle,
                         cudaStream_t stream) {
  const std::size_t bytes = card::bytes_of(count, type);
  if (from != to && root == card::of(handle)->rank) std::memmove(to, from, bytes);
  card::run("Broadcast", *card::of(handle), static_cast<double>(bytes), 1, stream);
  return kNcclSuccess;
}

NcclReturn ncclBcast(void* data, std::size_t count, int type, int root, void* handle, cudaStream_t stream) {
  return ncclBroadcast(data, data, count, type, root, handle, stream);
}

NcclReturn ncclAllGather(const void* from, void* to, std::size_t count, int type, void* handle, cudaStream_t stream) {
  const std::size_t bytes = card::bytes_of(count, type);
  const card::Communicator& on = *card::of(handle);
  for (int rank = 0; rank < on.ranks; ++rank)
    std::memmove(static_cast<char*>(to) + std::size_t(rank) * bytes, from, bytes);
  card::run("AllGather", on, static_cast<double>(bytes) * on.ranks, 1, stream);
  return kNcclSuccess;
}

NcclReturn ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int, void* handle,
                             cudaStream_t stream) {
  const std::size_t bytes = card::bytes_of(count, type);
  const card::Communicator& on = *card::of(handle);
  std::memmove(to, static_cast<const char*>(from) + on.rank * bytes, bytes);
  card::run("ReduceScatter_Sum_f32", on, static_cast<double>(bytes) * on.ranks, 1, stream);
  return kNcclSuccess;
}

}  // extern "C"
