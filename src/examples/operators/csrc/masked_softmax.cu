// The kernels of masked_softmax.cpp for NVIDIA GPUs: a warp, 32 threads, works on a row.

#include "masked_softmax.h"

#include <cuda_runtime.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/macros.h>

#include <algorithm>
#include <limits>

namespace {

using namespace masked_softmax;

constexpr int kWarp = 32;
constexpr int kRows = 4;  // of a block
constexpr unsigned kEveryThread = 0xffffffff;

__device__ float exponential(float x) { return expf(x); }
__device__ double exponential(double x) { return exp(x); }

template <typename W>
__device__ W sum_of_warp(W value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kEveryThread, value, step);
  return value;
}

template <typename W>
__device__ W greatest_of_warp(W value) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const W other = __shfl_xor_sync(kEveryThread, value, step);
    value = other > value || isnan(other) ? other : value;  // not a number stays
  }
  return value;
}

template <typename T>
__global__ void forward_kernel(const T* scores, MaskRows mask, T scale, int64_t rows, int64_t keys, T* weights) {
  const T nothing = -std::numeric_limits<T>::infinity();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.y;
  if (row >= rows) return;
  const uint8_t* allowed = mask.row(row);
  scores += row * keys;
  weights += row * keys;
  const auto score = [&](int64_t key) {
    return allowed == nullptr || allowed[key] ? scores[key] * scale : nothing;
  };
  T top = nothing, sum = 0;
  for (int64_t key = threadIdx.x; key < keys; key += kWarp) {
    const T value = score(key);
    top = value > top || isnan(value) ? value : top;
  }
  top = greatest_of_warp(top);
  const bool empty = top == nothing;  // a softmax over no key would not be a number
  for (int64_t key = threadIdx.x; key < keys && !empty; key += kWarp) sum += exponential(score(key) - top);
  sum = sum_of_warp(sum);
  for (int64_t key = threadIdx.x; key < keys; key += kWarp) {
    weights[key] = empty ? T(0) : exponential(score(key) - top) / sum;
  }
}

template <typename T>
__global__ void backward_kernel(
    const T* grad, const T* weights, T scale, int64_t rows, int64_t keys, T* result) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.y;
  if (row >= rows) return;
  const int64_t begin = row * keys;
  T sum = 0;
  for (int64_t key = threadIdx.x; key < keys; key += kWarp) {
    sum += grad[begin + key] * weights[begin + key];
  }
  sum = sum_of_warp(sum);
  for (int64_t key = threadIdx.x; key < keys; key += kWarp) {
    result[begin + key] = (grad[begin + key] - sum) * weights[begin + key] * scale;
  }
}

// Calls launch(blocks, threads, stream) on the tensor's device, in the stream that torch uses there.
template <typename F>
void for_rows(const Tensor& tensor, int64_t rows, const F& launch) {
  if (tensor.numel() == 0) return;
  const torch::stable::accelerator::DeviceGuard guard(tensor.get_device_index());
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  const int64_t blocks = (rows + kRows - 1) / kRows;
  STD_TORCH_CHECK(blocks <= std::numeric_limits<int32_t>::max(), "masked_softmax: too many rows");
  launch(dim3(static_cast<unsigned>(blocks)), dim3(kWarp, kRows), static_cast<cudaStream_t>(stream));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor forward(const Tensor& given, const std::optional<Tensor>& given_mask, double scale) {
  const Tensor scores = torch::stable::contiguous(given);
  const std::optional<Tensor> mask = keys_together(given_mask);
  const int64_t keys = scores.size(scores.dim() - 1), rows = scores.numel() / std::max<int64_t>(1, keys);
  const MaskRows allowed = rows_of(mask, scores);
  Tensor weights = torch::stable::empty_like(scores);
  with_type_of(scores, [&](auto number) {
    using T = decltype(number);
    for_rows(scores, rows, [&](dim3 blocks, dim3 threads, cudaStream_t stream) {
      forward_kernel<T><<<blocks, threads, 0, stream>>>(
          static_cast<const T*>(scores.const_data_ptr()), allowed, static_cast<T>(scale), rows, keys,
          static_cast<T*>(weights.mutable_data_ptr()));
    });
  });
  return weights;
}

Tensor backward(const Tensor& given, const Tensor& kept, double scale) {
  const Tensor grad = torch::stable::contiguous(given), weights = torch::stable::contiguous(kept);
  STD_TORCH_CHECK(grad.scalar_type() == weights.scalar_type() && same_device_and_shape(grad, weights),
                  "masked_softmax_backward: gradient and weights must have the same type, shape and device");
  const int64_t keys = grad.size(grad.dim() - 1), rows = grad.numel() / std::max<int64_t>(1, keys);
  Tensor result = torch::stable::empty_like(grad);
  with_type_of(grad, [&](auto number) {
    using T = decltype(number);
    for_rows(grad, rows, [&](dim3 blocks, dim3 threads, cudaStream_t stream) {
      backward_kernel<T><<<blocks, threads, 0, stream>>>(
          static_cast<const T*>(grad.const_data_ptr()), static_cast<const T*>(weights.const_data_ptr()),
          static_cast<T>(scale), rows, keys, static_cast<T*>(result.mutable_data_ptr()));
    });
  });
  return result;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(examples, CUDA, library) {
  library.impl("masked_softmax", TORCH_BOX(&forward));
  library.impl("masked_softmax_backward", TORCH_BOX(&backward));
}
