// The only access to libcupti: loaded when needed, and called through this table of functions.
#pragma once

#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <cupti_result.h>
#include <cupti_version.h>

#include <string>

namespace curvescope {

#define CURVESCOPE_CUPTI_REQUIRED(X) \
  X(GetVersion)                      \
  X(GetResultString)                 \
  X(Subscribe)                       \
  X(Unsubscribe)                     \
  X(GetTimestamp)                    \
  X(GetCallbackName)                 \
  X(ActivityRegisterCallbacks)       \
  X(ActivityEnable) X(ActivityDisable) X(ActivityFlushAll) X(ActivityGetNextRecord) X(ActivityGetNumDroppedRecords)

// Null if this version of libcupti lacks the function.
#define CURVESCOPE_CUPTI_OPTIONAL(X)   \
  X(SetThreadIdType)                   \
  X(ActivityRegisterTimestampCallback) \
  X(ActivitySetAttribute)              \
  X(ActivityEnableRuntimeApi)          \
  X(ActivityEnableDriverApi)           \
  X(EnableCallback)                    \
  X(GetGraphNodeId)

struct CuptiApi {
#define CURVESCOPE_CUPTI_MEMBER(name) decltype(&cupti##name) name;  // NOLINT(bugprone-macro-parentheses): a declaration
  CURVESCOPE_CUPTI_REQUIRED(CURVESCOPE_CUPTI_MEMBER)
  CURVESCOPE_CUPTI_OPTIONAL(CURVESCOPE_CUPTI_MEMBER)
#undef CURVESCOPE_CUPTI_MEMBER
};

struct CuptiFound {
  bool usable = false;
  CuptiApi api{};
  std::string path;
  std::string why_not;     // a sentence for the user, if libcupti is unusable
  int driver_version = 0;  // from cuDriverGetVersion: 12040 is CUDA 12.4
};

// Search order: the variable CURVESCOPE_CUPTI (a path is used, `off` disables CUPTI), the library that this
// process has loaded, the wheels beside the process's Python packages, the toolkit beside its CUDA runtime or in
// CUDA_HOME, CUDA_PATH or /usr/local/cuda, and what the system's loader finds. Never one newer than the driver.
CuptiFound find_cupti() noexcept;

}  // namespace curvescope
