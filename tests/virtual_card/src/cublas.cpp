// cuBLAS and cuBLASLt, as far as PyTorch calls them for training steps: products, and what sets them up.
// cuBLAS' header includes those of half types for the compiler of CUDA, which need a package more; names are enough.
#define __CUDA_FP16_H__
#define __CUDA_BF16_H__
struct __half;
struct __nv_bfloat16;
#include <cublasLt.h>
#include <cublas_v2.h>

#include <cstring>
#include <map>
#include <vector>

#include "products.h"

namespace card {

namespace {

struct Blas {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};

Blas* of(cublasHandle_t handle) { return reinterpret_cast<Blas*>(handle); }

Precision precision_of(cudaDataType type, bool tf32) {
  switch (type) {
    case CUDA_R_64F:
    case CUDA_C_64F:
      return Precision::kFp64;
    case CUDA_R_16F:
      return Precision::kFp16;
    case CUDA_R_16BF:
      return Precision::kBf16;
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
      return Precision::kFp8;
    default:
      return tf32 ? Precision::kTf32 : Precision::kFp32;
  }
}

std::string layout_of(cublasOperation_t a, cublasOperation_t b) {
  return std::string(a == CUBLAS_OP_N ? "n" : "t") + (b == CUBLAS_OP_N ? "n" : "t");
}

// An operand in memory, and how far its columns are apart.
struct Operand {
  const void* address;
  std::int64_t leading;
};

void put_operands(Product* product, Operand a, Operand b, Operand c) {
  const Operand all[] = {a, b, c};
  for (int i = 0; i < 3; ++i) {
    product->operands[i] = all[i].address;
    product->leading[i] = all[i].leading;
  }
}

cublasStatus_t multiply(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k,
                        int batch, cudaDataType type, Operand a, Operand b, Operand c) {
  Product product{double(m), double(n), double(k), double(batch)};
  product.precision = precision_of(type, of(handle)->math == CUBLAS_TF32_TENSOR_OP_MATH);
  product.layout = layout_of(a_op, b_op);
  put_operands(&product, a, b, c);
  // The library launches through the runtime, whose call CUPTI tells.
  launch_from_library([&] { launch_product(product, stream_of(of(handle)->stream)); });
  return CUBLAS_STATUS_SUCCESS;
}

// Products of a matrix and a vector, and of two vectors: bytes over bandwidth.
cublasStatus_t read_matrix(cublasHandle_t handle, const char* name, double rows, double columns, double bytes) {
  Work work;
  work.name = name;
  work.grid = dim3(static_cast<unsigned int>(std::max(1.0, rows / 4)));
  work.block = dim3(128);
  work.bytes = (rows * columns + rows + columns) * bytes;
  launch_from_library([&] { submit(stream_of(of(handle)->stream), work); });
  return CUBLAS_STATUS_SUCCESS;
}

// A descriptor of cuBLASLt: its attributes by number, as they were set.
using Attributes = std::map<int, std::vector<char>>;

struct Layout {
  cudaDataType type;
  std::uint64_t rows, columns;
  std::int64_t leading;
  Attributes attributes;
};

struct Description {
  cublasComputeType_t compute;
  Attributes attributes;
};

void put(Attributes* attributes, int which, const void* value, std::size_t bytes) {
  const auto* from = static_cast<const char*>(value);
  (*attributes)[which].assign(from, from + bytes);
}

template <typename Value>
Value look_up(const Attributes& attributes, int which, Value otherwise) {
  const auto found = attributes.find(which);
  if (found == attributes.end() || found->second.size() < sizeof(Value)) return otherwise;
  Value value;
  std::memcpy(&value, found->second.data(), sizeof value);
  return value;
}

// The opaque types of cuBLASLt are arrays; ours lies behind a pointer in them, which the create function sets.
template <typename Ours, typename Theirs>
Ours* inside(Theirs theirs) {
  return reinterpret_cast<Ours*>(theirs);
}

}  // namespace

}  // namespace card

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = reinterpret_cast<cublasHandle_t>(new card::Blas);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete card::of(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  card::of(handle)->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, std::size_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasSetSmCountTarget(cublasHandle_t, int) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  card::of(handle)->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  *mode = card::of(handle)->math;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  card::of(handle)->pointers = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  *mode = card::of(handle)->pointers;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                              const float*, const float* a, int lda, const float* b, int ldb, const float*, float* c,
                              int ldc) {
  return card::multiply(h, ta, tb, m, n, k, 1, CUDA_R_32F, {a, lda}, {b, ldb}, {c, ldc});
}

cublasStatus_t cublasDgemm_v2(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                              const double*, const double* a, int lda, const double* b, int ldb, const double*,
                              double* c, int ldc) {
  return card::multiply(h, ta, tb, m, n, k, 1, CUDA_R_64F, {a, lda}, {b, ldb}, {c, ldc});
}

cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                            const void*, const void* a, cudaDataType type, int lda, const void* b, cudaDataType,
                            int ldb, const void*, void* c, cudaDataType, int ldc, cublasComputeType_t,
                            cublasGemmAlgo_t) {
  return card::multiply(h, ta, tb, m, n, k, 1, type, {a, lda}, {b, ldb}, {c, ldc});
}

cublasStatus_t cublasSgemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                             const float*, const void* a, cudaDataType type, int lda, const void* b, cudaDataType,
                             int ldb, const float*, void* c, cudaDataType, int ldc) {
  return card::multiply(h, ta, tb, m, n, k, 1, type, {a, lda}, {b, ldb}, {c, ldc});
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                                         int k, const float*, const float* a, int lda, long long int, const float* b,
                                         int ldb, long long int, const float*, float* c, int ldc, long long int,
                                         int batch) {
  return card::multiply(h, ta, tb, m, n, k, batch, CUDA_R_32F, {a, lda}, {b, ldb}, {c, ldc});
}

cublasStatus_t cublasDgemmStridedBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                                         int k, const double*, const double* a, int lda, long long int, const double* b,
                                         int ldb, long long int, const double*, double* c, int ldc, long long int,
                                         int batch) {
  return card::multiply(h, ta, tb, m, n, k, batch, CUDA_R_64F, {a, lda}, {b, ldb}, {c, ldc});
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                                          int k, const void*, const void* a, cudaDataType type, int lda, long long int,
                                          const void* b, cudaDataType, int ldb, long long int, const void*, void* c,
                                          cudaDataType, int ldc, long long int, int batch, cublasComputeType_t,
                                          cublasGemmAlgo_t) {
  return card::multiply(h, ta, tb, m, n, k, batch, type, {a, lda}, {b, ldb}, {c, ldc});
}

cublasStatus_t cublasSgemv_v2(cublasHandle_t h, cublasOperation_t, int m, int n, const float*, const float*, int,
                              const float*, int, const float*, float*, int) {
  return card::read_matrix(h, "_Z18gemv2T_kernel_fp32v", n, m, 4);
}

cublasStatus_t cublasDgemv_v2(cublasHandle_t h, cublasOperation_t, int m, int n, const double*, const double*, int,
                              const double*, int, const double*, double*, int) {
  return card::read_matrix(h, "_Z18gemv2T_kernel_fp64v", n, m, 8);
}

cublasStatus_t cublasSdot_v2(cublasHandle_t h, int n, const float*, int, const float*, int, float*) {
  return card::read_matrix(h, "_Z15dot_kernel_fp32v", n, 1, 4);
}

cublasStatus_t cublasDdot_v2(cublasHandle_t h, int n, const double*, int, const double*, int, double*) {
  return card::read_matrix(h, "_Z15dot_kernel_fp64v", n, 1, 8);
}

// cuBLASLt

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute, cudaDataType) {
  *out = reinterpret_cast<cublasLtMatmulDesc_t>(new card::Description{compute, {}});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t one) {
  delete card::inside<card::Description>(one);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t one, cublasLtMatmulDescAttributes_t which,
                                              const void* value, std::size_t bytes) {
  card::put(&card::inside<card::Description>(one)->attributes, which, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
  *out = reinterpret_cast<cublasLtMatrixLayout_t>(new card::Layout{type, rows, columns, leading, {}});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t one) {
  delete card::inside<card::Layout>(one);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t one, cublasLtMatrixLayoutAttribute_t which,
                                                const void* value, std::size_t bytes) {
  card::put(&card::inside<card::Layout>(one)->attributes, which, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  *out = reinterpret_cast<cublasLtMatmulPreference_t>(new card::Attributes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t one) {
  delete card::inside<card::Attributes>(one);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t one,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void* value,
                                                    std::size_t bytes) {
  card::put(card::inside<card::Attributes>(one), which, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  std::memset(results, 0, sizeof *results * static_cast<std::size_t>(wanted));
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t how, const void*, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void*, const void*, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*, void*, std::size_t,
                              cudaStream_t stream) {
  const auto& description = *card::inside<card::Description>(how);
  const auto& left = *card::inside<card::Layout>(a_layout);
  const auto& right = *card::inside<card::Layout>(b_layout);
  const auto& out = *card::inside<card::Layout>(d_layout);
  const auto a_op = card::look_up(description.attributes, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N);
  const auto b_op = card::look_up(description.attributes, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  card::Product product{double(out.rows), double(out.columns), double(a_op == CUBLAS_OP_N ? left.columns : left.rows)};
  product.batch = card::look_up<std::int32_t>(out.attributes, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 1);
  product.precision = card::precision_of(left.type, description.compute == CUBLAS_COMPUTE_32F_FAST_TF32);
  product.layout = card::layout_of(a_op, b_op);
  card::put_operands(&product, {a, left.leading}, {b, right.leading}, {d, out.leading});
  card::launch_from_library([&] { card::launch_product(product, card::stream_of(stream)); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
