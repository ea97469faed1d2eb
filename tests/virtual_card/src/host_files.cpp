// Files of the kernel that are others on a machine with the card: its driver's is there; and under a virtual time there
// is none of how long threads waited for a processor, which is of the host's own time.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "clock.h"
#include "next.h"

extern "C" {

int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const unsigned int mode = va_arg(more, unsigned int);
  va_end(more);
  const char* name = std::strrchr(path, '/');
  if (name != nullptr && std::strcmp(name, "/schedstat") == 0 && card::is_virtual()) {
    errno = ENOENT;
    return -1;
  }
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

int stat64(const char* path, struct stat64* about) noexcept {
  const bool is_driver = std::strcmp(path, "/dev/nvidiactl") == 0 && std::getenv("VIRTUAL_CARD") != nullptr;
  return card::next_of(&stat64, "stat64")(is_driver ? "/dev/null" : path, about);
}

}  // extern "C"
