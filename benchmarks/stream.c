// STREAM's triad, to hold ours against: a = b + s c, the threads' shares as OpenMP gives them.
// Build: cc -O3 -march=native -fopenmp -shared -fPIC stream.c (benchmarks/stream.py does)
#include <omp.h>
#include <stddef.h>

// Pages belong to the thread that writes them first.
void fill(float* a, float* b, float* c, size_t count) {
#pragma omp parallel for
  for (size_t i = 0; i < count; ++i) {
    a[i] = 0.0f;
    b[i] = 1.0f;
    c[i] = 2.0f;
  }
}

double triad(float* restrict a, const float* restrict b, const float* restrict c, size_t count) {
  const double start = omp_get_wtime();
#pragma omp parallel for
  for (size_t i = 0; i < count; ++i) a[i] = b[i] + 3.0f * c[i];
  return omp_get_wtime() - start;
}
