// What the CUDA driver calls in the library that CUDA_INJECTION64_PATH names, and what this process may call itself.
#include "curvescope/collector.h"
#include "recorder.h"

// Always 1: the program continues even if recording failed.
CURVESCOPE_API int InitializeInjection() noexcept {
  if (curvescope::recorder::start_injected()) curvescope::recorder::start_cupti();
  return 1;
}

CURVESCOPE_API int curvescope_record_start(const char* folder) noexcept {
  if (folder == nullptr || !curvescope::recorder::start(folder)) return 0;
  curvescope::recorder::start_cupti();
  return 1;
}

CURVESCOPE_API void curvescope_record_stop() noexcept { curvescope::recorder::stop(); }
