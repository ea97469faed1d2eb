// Matrix products, of cuBLAS and of convolutions: kernels of tiles, with names as NVIDIA's libraries give them.
#pragma once

#include <string>

#include "card.h"

namespace card {

enum class Precision { kFp64, kFp32, kTf32, kFp16, kBf16, kFp8 };

struct Product {
  double m, n, k, batch = 1;
  Precision precision = Precision::kFp32;
  std::string layout = "nn";  // of the two operands
  const void* operands[3] = {};
  std::int64_t leading[3] = {};  // elements from one column of an operand to the next; 0: as tensor cores like it
};

// FMAs that an SM starts in a clock, on tensor cores where the card has them for the precision.
double fmas_per_clock(const DeviceFacts& on, Precision precision);
double element_bytes(Precision precision);

std::string types_of(Precision precision);                           // in a kernel's name
std::string tile_of(const Product& product, const DeviceFacts& on);  // e.g. 128x64
Work work_of(const Product& product, const DeviceFacts& on);
void launch_product(const Product& product, Stream* stream);

}  // namespace card
