// What the kernels for CPUs and for GPUs share: what they accept, and where the mask of a row of scores lies.

#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>
#include <optional>

namespace masked_softmax {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Calls run with a number of the tensor's type.
template <typename F>
void with_type_of(const Tensor& tensor, const F& run) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float: return run(float());
    case ScalarType::Double: return run(double());
    default: STD_TORCH_CHECK(false, "masked_softmax: float32 or float64 is needed");
  }
}

// One by one: torch 2.10 has no comparison of whole sizes.
inline bool same_device_and_shape(const Tensor& one, const Tensor& other) {
  bool same = one.get_device_index() == other.get_device_index() && one.dim() == other.dim();
  for (int64_t dimension = 0; same && dimension < one.dim(); ++dimension) {
    same = one.size(dimension) == other.size(dimension);
  }
  return same;
}

// A mask, expanded to the shape of the scores, whose rows are read in place: its stride is 0 along a dimension in which
// it is repeated. Its truth values are read as bytes, of which compilers can look at several at once.
struct MaskRows {
  static constexpr int64_t kMostDimensions = 16;

  const uint8_t* first = nullptr;  // not 0 where a key is allowed; no mask: everywhere
  int64_t dimensions = 0;          // of the scores, without the last one
  int64_t sizes[kMostDimensions] = {};
  int64_t strides[kMostDimensions] = {};

#ifdef __CUDACC__
  __host__ __device__
#endif
  const uint8_t* row(int64_t number) const {
    if (first == nullptr) return nullptr;
    int64_t offset = 0;
    for (int64_t dimension = dimensions - 1; dimension >= 0; --dimension) {
      offset += number % sizes[dimension] * strides[dimension];
      number /= sizes[dimension];
    }
    return first + offset;
  }
};

// Kernels read the keys of a row side by side.
inline std::optional<Tensor> keys_together(const std::optional<Tensor>& mask) {
  const bool apart = mask.has_value() && mask->dim() > 0 && mask->stride(mask->dim() - 1) != 1;
  return apart ? torch::stable::contiguous(*mask) : mask;
}

inline MaskRows rows_of(const std::optional<Tensor>& mask, const Tensor& scores) {
  MaskRows rows;
  if (!mask.has_value()) return rows;
  STD_TORCH_CHECK(mask->scalar_type() == ScalarType::Bool, "masked_softmax: the mask must be boolean");
  STD_TORCH_CHECK(same_device_and_shape(*mask, scores),
                  "masked_softmax: the mask must have the shape of the scores and be on their device");
  STD_TORCH_CHECK(scores.dim() - 1 <= MaskRows::kMostDimensions, "masked_softmax: scores have more than 17 dimensions");
  rows.first = static_cast<const uint8_t*>(mask->const_data_ptr());
  rows.dimensions = scores.dim() - 1;
  for (int64_t dimension = 0; dimension < rows.dimensions; ++dimension) {
    rows.sizes[dimension] = scores.size(dimension);
    rows.strides[dimension] = mask->stride(dimension);
  }
  return rows;
}

}  // namespace masked_softmax
