// Load latency of each memory level: one thread follows a chain of pointers through a buffer of that level's size.
//
// The chain holds addresses, not indices, so that nothing but the load lies between one load and the next. Build it
// with chase_link from a random cycle (a permutation with one cycle, or hardware prefetch and early return would lie);
// latency in cycles is *cycles / steps, in nanoseconds the kernel's time / steps for many steps. Before Volta, global
// loads pass L1 by on most devices: what is found for a small buffer is then L2.
extern "C" {

// chain[i] points at chain[next[i]]. Launch: 256 threads, grid ceil(count / 256).
__global__ __launch_bounds__(256) void chase_link(void** chain, const unsigned* next, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) chain[i] = &chain[next[i]];
}

// Launch: 1 thread. `steps` is a multiple of 16. `end` keeps the walk alive, and shows that it went where it should.
// With `goes_on` the walk begins at `end` of the launch before: launches that all began at `start` would find their
// items in the caches, however large the buffer is.
__global__ __launch_bounds__(1) void chase(void** start, long long steps, long long* cycles, void*** end, int goes_on) {
  void** at = goes_on ? *end : start;
  const long long begin = clock64();
  for (long long step = 0; step < steps; step += 16) {
#pragma unroll
    for (int i = 0; i < 16; ++i) at = static_cast<void**>(*at);
  }
  *cycles = clock64() - begin;  // may miss the last load: one in `steps`
  *end = at;
}

}  // extern "C"
