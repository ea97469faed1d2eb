// The C library's function of a name that the card has too.
#pragma once

#include <dlfcn.h>

namespace card {

template <typename Function>
Function* next_of(Function*, const char* name, const char* version = nullptr) {
  void* found = version == nullptr ? dlsym(RTLD_NEXT, name) : dlvsym(RTLD_NEXT, name, version);
  return reinterpret_cast<Function*>(found);
}

}  // namespace card
