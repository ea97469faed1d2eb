// How a thread that asks for Python ends while Python ends. Before 3.14 Python unwinds it, and PyTorch's backward
// thread aborts there ("terminate called without an active exception"): it lets go of what belongs to Python after the
// program was told that its gradients are there. On a real card the program is hardly ever that fast; here it often is,
// so the thread stays where it is, as in Python 3.14.
#include <pthread.h>
#include <unistd.h>

#include "next.h"

extern "C" [[noreturn]] void pthread_exit(void* value) {
  static const auto python_ends = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "_Py_IsFinalizing"));
  while (python_ends != nullptr && python_ends() != 0) pause();
  card::next_of(&pthread_exit, "pthread_exit")(value);
  __builtin_unreachable();
}
