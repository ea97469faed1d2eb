// The only access to libcupti: loaded when needed, and called through this table of functions.
#pragma once

#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <cupti_result.h>
#include <cupti_version.h>

#include <cstdint>
#include <string>
#include <vector>

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
  X(ActivityGetAttribute)              \
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
  bool exists = false;
  CuptiApi api{};
  std::uint32_t version = 0;  // from cuptiGetVersion
  std::string path;
  std::string why_not;  // a sentence for the user, if libcupti is unusable
};

struct CuptiSearch {
  std::vector<std::string> paths;  // to try one after the other
  std::string why_not;             // a sentence for the user, if there is none
};

// Search order: the variable CURVESCOPE_CUPTI (a path is used, `off` disables CUPTI), the library that this
// process has loaded, the wheels beside the process's Python packages, the toolkit beside its CUDA runtime or in
// CUDA_HOME, CUDA_PATH or /usr/local/cuda, the folders in CURVESCOPE_CUPTI_FOLDERS, separated by colons, and what the
// system's loader finds.
CuptiSearch search_cupti(int driver_version);

// Loads a libcupti and asks for its version. One that lacks a function or is of a newer CUDA than the driver is
// unusable, and unloaded.
CuptiFound load_cupti(const std::string& path, int driver_version);

}  // namespace curvescope
