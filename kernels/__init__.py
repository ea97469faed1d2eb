"""What one operator costs alone: microbenchmarks and the CUDA sources they launch."""
