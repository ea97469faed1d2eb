// Just enough CUDA on a CPU to run the kernels of kernels/cuda as they stand: each thread of a block is a fiber, a
// barrier passes the turn to the next one, and blocks run one after the other. Threads run in rising or in falling
// order: a kernel whose result depends on that lacks a barrier.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

// Compiled where a test launches it only.
#define __global__ inline
#define __device__
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)

struct Index {
  unsigned x, y, z;
};
struct float4 {
  float x, y, z, w;
};
inline Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

struct Fiber {
  ucontext_t context;
  bool at_barrier = false;
  bool done = false;
};

inline ucontext_t scheduler;
inline Fiber* running = nullptr;
inline void (*body)();
inline void** arguments_of_body;
inline char stacks[1024][1 << 16];  // for the largest block

inline void run_body() {
  body();
  running->done = true;
}

// Runs one block; false if some threads wait at a barrier that others never reach.
inline bool run_block(unsigned threads, bool falling) {
  std::vector<Fiber> fibers(threads);
  for (unsigned thread = 0; thread < threads; ++thread) {
    ucontext_t& context = fibers[thread].context;
    getcontext(&context);
    context.uc_stack.ss_sp = stacks[thread];
    context.uc_stack.ss_size = sizeof stacks[thread];
    context.uc_link = &scheduler;
    makecontext(&context, run_body, 0);
  }
  for (;;) {
    unsigned waiting = 0;
    for (unsigned turn = 0; turn < threads; ++turn) {
      const unsigned thread = falling ? threads - 1 - turn : turn;
      running = &fibers[thread];
      threadIdx = {thread, 0, 0};
      running->at_barrier = false;
      swapcontext(&scheduler, &running->context);
      waiting += running->at_barrier;
    }
    if (waiting == 0) return true;
    if (waiting != threads) return false;
  }
}

// Arguments as cuLaunchKernel takes them: a pointer to each.
template <typename... Parameters>
void call(void (*kernel)(Parameters...), [[maybe_unused]] void** arguments) {
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    kernel(*static_cast<std::remove_const_t<Parameters>*>(arguments[i])...);
  }(std::index_sequence_for<Parameters...>{});
}

template <auto kernel>
bool launch(const unsigned* grid, unsigned threads, bool falling, void** arguments) {
  body = [] { call(kernel, arguments_of_body); };
  arguments_of_body = arguments;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {threads, 1, 1};
  for (unsigned z = 0; z < grid[2]; ++z) {
    for (unsigned y = 0; y < grid[1]; ++y) {
      for (unsigned x = 0; x < grid[0]; ++x) {
        blockIdx = {x, y, z};
        if (!run_block(threads, falling)) return false;
      }
    }
  }
  return true;
}

}  // namespace emulation

inline void __syncthreads() {
  emulation::running->at_barrier = true;
  swapcontext(&emulation::running->context, &emulation::scheduler);
}

inline long long clock64() {
  static long long clock = 0;
  return ++clock;
}
