// What a launch costs: a kernel that does nothing, launched with any grid and up to 1024 threads.
extern "C" __global__ __launch_bounds__(1024) void empty() {}

// Holds the stream for `cycles` of the clock, while the host queues what is timed behind it. Launch: 1 thread.
extern "C" __global__ __launch_bounds__(1) void spin(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}
