// The card's memory: the host's, which nobody fills until somebody copies to it. What nobody wrote reads as 0.
#include <cupti_activity.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "card.h"

namespace card {

namespace {

constexpr std::size_t kPage = 4096;
// Sets, and copies inside the card, are made up to this size: no test looks at the numbers in larger ones, and the host
// would take the time that a card does not.
constexpr std::size_t kMostMoved = 1 << 20;

std::map<const void*, Allocation>& allocations() {
  static auto& made = *new std::map<const void*, Allocation>;
  return made;
}

std::size_t whole_pages(std::size_t bytes) { return std::max(kPage, (bytes + kPage - 1) / kPage * kPage); }

bool is_on_device(const void* address) {
  const Allocation* found = find_allocation(address);
  return found != nullptr && found->kind != Memory::kPinned;
}

cudaMemcpyKind kind_of(const void* to, const void* from) {
  const bool to_device = is_on_device(to), from_device = is_on_device(from);
  if (to_device) return from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

}  // namespace

const Allocation* find_allocation(const void* address, const void** base) {
  LOCK();
  const auto& all = allocations();
  auto after = all.upper_bound(address);
  if (after == all.begin()) return nullptr;
  --after;
  const auto offset = static_cast<const char*>(address) - static_cast<const char*>(after->first);
  if (static_cast<std::size_t>(offset) >= after->second.bytes) return nullptr;
  if (base != nullptr) *base = after->first;
  return &after->second;
}

// `counted` is what it takes of the card's memory.
cudaError_t allocate(void** out, std::size_t bytes, Memory kind, std::size_t counted) {
  LOCK();
  *out = nullptr;
  Device& on = device(current_device());
  if (counted > on.facts->memory_bytes - on.used_bytes) return cudaErrorMemoryAllocation;
  void* made =
      mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return cudaErrorMemoryAllocation;
  on.used_bytes += counted;
  allocations()[made] = {bytes, on.index, kind};
  record_allocation(made, bytes, kind, on.index, false);
  *out = made;
  return cudaSuccess;
}

cudaError_t release(void* address) {
  if (address == nullptr) return cudaSuccess;
  LOCK();
  const auto found = allocations().find(address);
  if (found == allocations().end()) return cudaErrorInvalidValue;
  const Allocation released = found->second;
  allocations().erase(found);
  if (released.kind != Memory::kPinned) device(released.device).used_bytes -= released.bytes;
  record_allocation(address, released.bytes, released.kind, released.device, true);
  munmap(address, whole_pages(released.bytes));
  return cudaSuccess;
}

void note_memory(const void* address, Allocation what) {
  LOCK();
  allocations()[address] = what;
}

void forget_memory(const void* address, std::size_t bytes) {
  LOCK();
  auto& all = allocations();
  all.erase(all.lower_bound(address), all.lower_bound(static_cast<const char*>(address) + bytes));
}

// A copy from or to pageable memory returns when it is done (of small ones to the card: when it is staged); one of
// pinned memory, and one inside the card, when it is queued.
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, Stream* stream, bool blocks) {
  constexpr std::size_t kStaged = 64 << 10;
  if (bytes == 0) return cudaSuccess;
  if (kind == cudaMemcpyDefault) kind = kind_of(to, from);
  Work work;
  work.kind = Work::kCopy;
  work.copied = bytes;
  const bool inside = kind == cudaMemcpyDeviceToDevice;
  work.bytes = inside ? 2.0 * static_cast<double>(bytes) : 0;
  work.copy_kind = inside                           ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOD
                   : kind == cudaMemcpyDeviceToHost ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                                                    : CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  const void* host = kind == cudaMemcpyDeviceToHost ? to : from;
  work.pageable = !inside && find_allocation(host) == nullptr;
  if (stream->capture != nullptr && work.pageable) return cudaErrorStreamCaptureUnsupported;
  const Span span = submit(stream, work);
  if (stream->capture != nullptr) return cudaSuccess;
  const bool is_staged = kind == cudaMemcpyHostToDevice && bytes <= kStaged && !blocks;
  if ((blocks && !inside) || (work.pageable && !is_staged)) wait_for_work(span.end);
  if (!inside || bytes <= kMostMoved) std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t set(void* to, unsigned int value, std::size_t width, std::size_t count, Stream* stream) {
  if (count == 0) return cudaSuccess;
  Work work;
  work.kind = Work::kSet;
  work.copied = width * count;
  work.bytes = static_cast<double>(work.copied);
  work.value = value;
  submit(stream, work);
  if (stream->capture != nullptr || work.copied > kMostMoved) return cudaSuccess;
  for (std::size_t at = 0; at < count; ++at) std::memcpy(static_cast<char*>(to) + at * width, &value, width);
  return cudaSuccess;
}

}  // namespace card
