// A test double of libcupti: its range profiler, host and device half, with the rules of cupti_range_profiler.h and
// cupti_profiler_host.h. A kernel is a call of fake_range_kernel; its value of a metric is 1000 * (its position in the
// step + 1) + the number of the metric; that of a metric with "undefined" in its name cannot be evaluated.
// FAKE_CUPTI_PASSES is the number of passes that a configuration needs.
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "fake_cupti.h"
#include "fake_cupti_emit.h"

namespace {

constexpr std::size_t kAvailabilityBytes = 7;

struct Host {
  std::vector<std::string> metrics;
};

struct Config {
  std::size_t metrics;
  std::size_t passes;
};

struct Counters {  // what an image of the counters begins with
  std::size_t most_ranges;
  std::size_t ranges;
  bool complete;
};

struct Profiler {
  const Config* config = nullptr;
  Counters* counters = nullptr;
  std::size_t most_ranges = 0;
  std::size_t pass = 0;
  std::size_t kernels = 0;
  bool started = false;
};

Profiler* active = nullptr;
bool initialized = false;

std::size_t passes() {
  const char* text = std::getenv("FAKE_CUPTI_PASSES");
  return text == nullptr ? 1 : static_cast<std::size_t>(std::atoi(text));
}

Profiler* of(CUpti_RangeProfiler_Object* object) { return reinterpret_cast<Profiler*>(object); }

Host* of(CUpti_Profiler_Host_Object* object) { return reinterpret_cast<Host*>(object); }

}  // namespace

#define FAKE_ENTERS(type) \
  FAKE_FAILS(__func__);   \
  if (p->structSize != type##_STRUCT_SIZE || p->pPriv != nullptr) return CUPTI_ERROR_INVALID_PARAMETER

#define FAKE_NEEDS(condition) \
  if (!(condition)) return CUPTI_ERROR_INVALID_OPERATION

extern "C" {

CUptiResult cuptiProfilerInitialize(CUpti_Profiler_Initialize_Params* p) {
  FAKE_ENTERS(CUpti_Profiler_Initialize_Params);
  initialized = true;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiDeviceGetChipName(CUpti_Device_GetChipName_Params* p) {
  FAKE_ENTERS(CUpti_Device_GetChipName_Params);
  FAKE_NEEDS(initialized);
  p->pChipName = "GH100";
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerGetCounterAvailability(CUpti_Profiler_GetCounterAvailability_Params* p) {
  FAKE_ENTERS(CUpti_Profiler_GetCounterAvailability_Params);
  FAKE_NEEDS(initialized && p->ctx != nullptr && active == nullptr);
  if (p->pCounterAvailabilityImage != nullptr) std::memset(p->pCounterAvailabilityImage, 1, kAvailabilityBytes);
  p->counterAvailabilityImageSize = kAvailabilityBytes;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostInitialize(CUpti_Profiler_Host_Initialize_Params* p) {
  FAKE_ENTERS(CUpti_Profiler_Host_Initialize_Params);
  FAKE_NEEDS(p->profilerType == CUPTI_PROFILER_TYPE_RANGE_PROFILER && std::strcmp(p->pChipName, "GH100") == 0);
  FAKE_NEEDS(p->pCounterAvailabilityImage != nullptr && p->pCounterAvailabilityImage[kAvailabilityBytes - 1] == 1);
  p->pHostObject = reinterpret_cast<CUpti_Profiler_Host_Object*>(new Host);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostDeinitialize(CUpti_Profiler_Host_Deinitialize_Params* p) {
  FAKE_ENTERS(CUpti_Profiler_Host_Deinitialize_Params);
  delete of(p->pHostObject);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostConfigAddMetrics(CUpti_Profiler_Host_ConfigAddMetrics_Params* p) {
  FAKE_ENTERS(CUpti_Profiler_Host_ConfigAddMetrics_Params);
  for (std::size_t i = 0; i < p->numMetrics; ++i) {
    if (std::strstr(p->ppMetricNames[i], "__") == nullptr) return CUPTI_ERROR_INVALID_METRIC_NAME;
    of(p->pHostObject)->metrics.emplace_back(p->ppMetricNames[i]);
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostGetConfigImageSize(CUpti_Profiler_Host_GetConfigImageSize_Params* p) {
  FAKE_ENTERS(CUpti_Profiler_Host_GetConfigImageSize_Params);
  p->configImageSize = sizeof(Config);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostGetConfigImage(CUpti_Profiler_Host_GetConfigImage_Params* p) {
  FAKE_ENTERS(CUpti_Profiler_Host_GetConfigImage_Params);
  FAKE_NEEDS(p->configImageSize == sizeof(Config));
  const Config config{of(p->pHostObject)->metrics.size(), passes()};
  std::memcpy(p->pConfigImage, &config, sizeof(config));
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostGetNumOfPasses(CUpti_Profiler_Host_GetNumOfPasses_Params* p) {
  FAKE_ENTERS(CUpti_Profiler_Host_GetNumOfPasses_Params);
  p->numOfPasses = reinterpret_cast<const Config*>(p->pConfigImage)->passes;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostEvaluateToGpuValues(CUpti_Profiler_Host_EvaluateToGpuValues_Params* p) {
  FAKE_ENTERS(CUpti_Profiler_Host_EvaluateToGpuValues_Params);
  const auto* counters = reinterpret_cast<const Counters*>(p->pCounterDataImage);
  FAKE_NEEDS(counters->complete && p->rangeIndex < counters->ranges);
  for (std::size_t i = 0; i < p->numMetrics; ++i)
    p->pMetricValues[i] = std::strstr(p->ppMetricNames[i], "undefined") != nullptr
                              ? std::nan("")
                              : 1000.0 * static_cast<double>(p->rangeIndex + 1) + static_cast<double>(i);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerEnable(CUpti_RangeProfiler_Enable_Params* p) {
  FAKE_ENTERS(CUpti_RangeProfiler_Enable_Params);
  FAKE_NEEDS(initialized && p->ctx != nullptr && active == nullptr);
  active = new Profiler;
  p->pRangeProfilerObject = reinterpret_cast<CUpti_RangeProfiler_Object*>(active);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerDisable(CUpti_RangeProfiler_Disable_Params* p) {
  FAKE_ENTERS(CUpti_RangeProfiler_Disable_Params);
  FAKE_NEEDS(of(p->pRangeProfilerObject) == active);
  delete active;
  active = nullptr;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerGetCounterDataSize(CUpti_RangeProfiler_GetCounterDataSize_Params* p) {
  FAKE_ENTERS(CUpti_RangeProfiler_GetCounterDataSize_Params);
  FAKE_NEEDS(of(p->pRangeProfilerObject) == active && p->maxNumRangeTreeNodes >= p->maxNumOfRanges);
  active->most_ranges = p->maxNumOfRanges;
  p->counterDataSize = sizeof(Counters);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerCounterDataImageInitialize(CUpti_RangeProfiler_CounterDataImage_Initialize_Params* p) {
  FAKE_ENTERS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params);
  FAKE_NEEDS(p->counterDataSize == sizeof(Counters));
  *reinterpret_cast<Counters*>(p->pCounterData) = Counters{active->most_ranges, 0, false};
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerSetConfig(CUpti_RangeProfiler_SetConfig_Params* p) {
  FAKE_ENTERS(CUpti_RangeProfiler_SetConfig_Params);
  FAKE_NEEDS(of(p->pRangeProfilerObject) == active && p->configSize == sizeof(Config) && p->passIndex == 0);
  FAKE_NEEDS(p->range == CUPTI_AutoRange && p->replayMode == CUPTI_UserReplay && p->numNestingLevels == 1);
  FAKE_NEEDS(p->minNestingLevel == 1 && p->targetNestingLevel == 1 && p->counterDataImageSize == sizeof(Counters));
  active->config = reinterpret_cast<const Config*>(p->pConfig);
  active->counters = reinterpret_cast<Counters*>(p->pCounterDataImage);
  FAKE_NEEDS(active->counters->most_ranges == p->maxRangesPerPass);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerStart(CUpti_RangeProfiler_Start_Params* p) {
  FAKE_ENTERS(CUpti_RangeProfiler_Start_Params);
  FAKE_NEEDS(of(p->pRangeProfilerObject) == active && active->config != nullptr && !active->started);
  active->started = true;
  active->kernels = 0;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerStop(CUpti_RangeProfiler_Stop_Params* p) {
  FAKE_ENTERS(CUpti_RangeProfiler_Stop_Params);
  FAKE_NEEDS(of(p->pRangeProfilerObject) == active && active->started);
  active->started = false;
  p->passIndex = ++active->pass;
  p->isAllPassSubmitted = active->pass == active->config->passes;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerDecodeData(CUpti_RangeProfiler_DecodeData_Params* p) {
  FAKE_ENTERS(CUpti_RangeProfiler_DecodeData_Params);
  FAKE_NEEDS(of(p->pRangeProfilerObject) == active && active->pass == active->config->passes);
  Counters& counters = *active->counters;
  counters.ranges = active->kernels < counters.most_ranges ? active->kernels : counters.most_ranges;
  counters.complete = true;
  p->numOfRangeDropped = active->kernels - counters.ranges;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerGetCounterDataInfo(CUpti_RangeProfiler_GetCounterDataInfo_Params* p) {
  FAKE_ENTERS(CUpti_RangeProfiler_GetCounterDataInfo_Params);
  p->numTotalRanges = reinterpret_cast<const Counters*>(p->pCounterDataImage)->ranges;
  return CUPTI_SUCCESS;
}

void fake_range_kernel() {
  if (active != nullptr && active->started) ++active->kernels;
}

int fake_range_profiler_is_enabled() { return active != nullptr ? 1 : 0; }

}  // extern "C"
