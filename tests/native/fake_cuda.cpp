// A test double of the CUDA driver (libcuda.so.1): loads the injected library as the driver does, and no more.
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>

namespace {
std::atomic<int> synchronized{0};
}

extern "C" {

int cuInit(unsigned int) {
  static std::atomic<bool> done{false};
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr || done.exchange(true)) return 0;
  void* library = dlopen(path, RTLD_NOW);
  auto* initialize = library == nullptr ? nullptr : reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  return initialize == nullptr || initialize() == 1 ? 0 : 999;
}

int cuDriverGetVersion(int* version) {
  const char* wanted = std::getenv("FAKE_CUDA_DRIVER");
  *version = wanted == nullptr ? 13050 : std::atoi(wanted);
  return 0;
}

int cuCtxGetCurrent(void** context) {
  *context = &synchronized;
  return 0;
}

int cuCtxSynchronize() {
  ++synchronized;
  return 0;
}

int fake_synchronized() { return synchronized; }

}  // extern "C"
