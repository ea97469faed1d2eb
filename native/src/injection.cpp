// What the CUDA driver calls in the library that CUDA_INJECTION64_PATH names, and what this process may call itself.
#include "activity.h"
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

CURVESCOPE_API int curvescope_cupti_pause() noexcept { return curvescope::recorder::pause_cupti() ? 1 : 0; }

CURVESCOPE_API int curvescope_cupti_resume() noexcept { return curvescope::recorder::resume_cupti() ? 1 : 0; }

CURVESCOPE_API void curvescope_cupti_share(int other_is_idle) noexcept {
  curvescope::activity::share(other_is_idle != 0);
}
