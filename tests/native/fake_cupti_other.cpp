// Another client of CUPTI in the process, as torch's profiler is: it registers its own buffers, which replace those of
// whoever was there, and disables the kinds of records when it ends. Kineto up to torch 2.13 subscribes at its first
// use and never leaves; later ones do not subscribe.
#include <cupti_activity.h>
#include <cupti_callbacks.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "fake_cupti.h"
#include "fake_cupti_emit.h"

namespace {

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER};
std::atomic<std::uint64_t> kernels{0};
std::atomic<std::uint64_t> other_records{0};

void give(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) {
  *bytes = std::size_t{64} << 10;
  *buffer = static_cast<std::uint8_t*>(std::malloc(*bytes));  // as Kineto does, which relies on CUPTI to zero it
  if (*buffer != nullptr) std::memset(*buffer, 0x5A, *bytes);
  *most = 0;
}

// Frees nothing: the buffer may be of another client.
void take(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid_bytes) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS)
    ++(record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ? kernels : other_records);
}

void ignore(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

}  // namespace

extern "C" {

int fake_other_subscribe() {
  static CUpti_SubscriberHandle handle = nullptr;
  return cuptiSubscribe(&handle, ignore, nullptr);
}

void fake_other_start() {
  cuptiActivityRegisterCallbacks(give, take);
  for (const CUpti_ActivityKind kind : kKinds) cuptiActivityEnable(kind);
}

void fake_other_stop() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  for (const CUpti_ActivityKind kind : kKinds) cuptiActivityDisable(kind);
}

std::uint64_t fake_other_kernels() { return kernels; }

}  // extern "C"
