// The part of the double of libcupti that only clients other than the collector call, as Kineto does: ids of its own
// for what a thread does, whole domains of callbacks, and the end of CUPTI.
#include <cupti_activity.h>
#include <cupti_callbacks.h>

#include <cstdint>
#include <map>
#include <vector>

#include "fake_cupti_emit.h"

namespace {

thread_local std::map<CUpti_ExternalCorrelationKind, std::vector<std::uint64_t>> external_ids;

}  // namespace

void emit_external_correlation(std::uint32_t correlation_id) {
  if (!is_enabled(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)) return;
  for (const auto& [kind, ids] : external_ids) {
    if (ids.empty()) continue;
    CUpti_ActivityExternalCorrelation record{};
    record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    record.externalKind = kind;
    record.externalId = ids.back();
    record.correlationId = correlation_id;
    emit(record);
  }
}

extern "C" {

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, std::uint64_t id) {
  FAKE_FAILS("cuptiActivityPushExternalCorrelationId");
  external_ids[kind].push_back(id);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, std::uint64_t* last) {
  FAKE_FAILS("cuptiActivityPopExternalCorrelationId");
  auto& ids = external_ids[kind];
  if (ids.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  if (last != nullptr) *last = ids.back();
  ids.pop_back();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableDomain(std::uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain) {
  FAKE_FAILS("cuptiEnableDomain");
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(std::uint8_t) {
  FAKE_FAILS("cuptiActivityEnableCudaEventDeviceTimestamps");
  return CUPTI_SUCCESS;
}

CUptiResult cuptiFinalize() {
  FAKE_FAILS("cuptiFinalize");
  return CUPTI_SUCCESS;
}

}  // extern "C"
