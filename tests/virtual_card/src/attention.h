// Fused attention: its products and what is between them in one kernel, by cuDNN or by a kernel of PyTorch.
#pragma once

#include "products.h"

namespace card {

struct Attention {
  double batch = 0, heads = 0, queries = 0, keys = 0, width = 0;
  Precision precision = Precision::kBf16;
  bool is_backward = false, is_causal = false;
};

std::int64_t workspace_bytes(const Attention& attention);
void launch_attention(const Attention& attention, Stream* stream);  // by cuDNN

// Fills the work of a kernel of PyTorch by the extents in its arguments; false if it is none of attention.
bool read_attention(const DeviceFacts& on, Work* work, void** arguments);

}  // namespace card
