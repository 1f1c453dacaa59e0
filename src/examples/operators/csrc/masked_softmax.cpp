// Softmax of scaled scores over the keys that a mask allows, and its backward pass: schemas, and kernels for CPUs.
//
// Only headers of torch's stable ABI are included: they compile in two seconds, torch/extension.h takes half a
// minute, and the library is not bound to one version of torch.
// https://docs.pytorch.org/docs/stable/notes/libtorch_stable_abi.html

#include "masked_softmax.h"

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace {

using namespace masked_softmax;

constexpr int64_t kGrain = 16384;  // numbers that are worth a thread of their own

// e^x for x <= 0, to the last digits of a float. Compilers can work on several at once here, with std::exp they can't.
inline float exponential(float x) {
  const float least = -87.0f;  // what is below is 0; not a number stays what it is
  const float bounded = x < least ? least : x;
  const float shifter = 12582912.0f;  // 1.5 * 2^23: a sum with it has no digits left behind the point
  const float shifted = bounded * 1.44269504f + shifter;
  const float whole = shifted - shifter;
  const float rest = bounded - whole * 0.693145752f - whole * 1.42860677e-6f;  // ln 2 in two parts, for its digits
  float series = 1.98756910e-4f;  // the coefficients of Cephes' expf
  series = series * rest + 1.39819994e-3f;
  series = series * rest + 8.33345205e-3f;
  series = series * rest + 4.16657962e-2f;
  series = series * rest + 1.66666657e-1f;
  series = series * rest + 0.5f;
  series = series * rest * rest + rest + 1.0f;
  uint32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 127) << 23;  // the exponent of 2 to the power of `whole`
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return x < least ? 0.0f : series * power;
}

inline double exponential(double x) { return std::exp(x); }

template <typename T>
void forward_row(const T* scores, const uint8_t* mask, T scale, int64_t keys, T* weights) {
  constexpr T nothing = -std::numeric_limits<T>::infinity();
  T top = nothing;
  if (mask != nullptr) {
#pragma omp simd
    for (int64_t key = 0; key < keys; ++key) {
      const T score = scores[key] * scale;  // read where it is masked, too, so that there is no branch
      weights[key] = mask[key] ? score : nothing;
    }
  } else {
#pragma omp simd
    for (int64_t key = 0; key < keys; ++key) weights[key] = scores[key] * scale;
  }
#pragma omp simd reduction(max : top)
  for (int64_t key = 0; key < keys; ++key) top = weights[key] > top ? weights[key] : top;
  if (top == nothing) {  // a softmax over no key would not be a number
    const bool broken = std::any_of(weights, weights + keys, [](T score) { return std::isnan(score); });
    std::fill_n(weights, keys, broken ? std::numeric_limits<T>::quiet_NaN() : T(0));
    return;
  }
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t key = 0; key < keys; ++key) {
    weights[key] = exponential(weights[key] - top);
    sum += weights[key];
  }
  const T share = 1 / sum;
#pragma omp simd
  for (int64_t key = 0; key < keys; ++key) weights[key] *= share;
}

template <typename T>
void backward_row(const T* grad, const T* weights, T scale, int64_t keys, T* result) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t key = 0; key < keys; ++key) sum += grad[key] * weights[key];
#pragma omp simd
  for (int64_t key = 0; key < keys; ++key) result[key] = (grad[key] - sum) * weights[key] * scale;
}

// Calls run(first, last) for parts of the rows, in torch's own threads and as many as torch.set_num_threads says.
template <typename F>
void for_rows(const Tensor& tensor, int64_t keys, const F& run) {
  if (tensor.numel() == 0) return;
  torch::stable::parallel_for(0, tensor.numel() / keys, std::max<int64_t>(1, kGrain / keys), run);
}

Tensor forward(const Tensor& given, const std::optional<Tensor>& given_mask, double scale) {
  const Tensor scores = torch::stable::contiguous(given);
  const std::optional<Tensor> mask = keys_together(given_mask);
  const int64_t keys = scores.size(scores.dim() - 1);
  const MaskRows rows = rows_of(mask, scores);
  Tensor weights = torch::stable::empty_like(scores);
  with_type_of(scores, [&](auto number) {
    using T = decltype(number);
    const T* from = static_cast<const T*>(scores.const_data_ptr());
    T* to = static_cast<T*>(weights.mutable_data_ptr());
    for_rows(scores, keys, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        forward_row<T>(from + row * keys, rows.row(row), static_cast<T>(scale), keys, to + row * keys);
      }
    });
  });
  return weights;
}

Tensor backward(const Tensor& given, const Tensor& kept, double scale) {
  const Tensor grad = torch::stable::contiguous(given), weights = torch::stable::contiguous(kept);
  STD_TORCH_CHECK(grad.scalar_type() == weights.scalar_type() && same_device_and_shape(grad, weights),
                  "masked_softmax_backward: gradient and weights must have the same type, shape and device");
  const int64_t keys = grad.size(grad.dim() - 1);
  Tensor result = torch::stable::empty_like(grad);
  with_type_of(grad, [&](auto number) {
    using T = decltype(number);
    const T* grads = static_cast<const T*>(grad.const_data_ptr());
    const T* from = static_cast<const T*>(weights.const_data_ptr());
    T* to = static_cast<T*>(result.mutable_data_ptr());
    for_rows(grad, keys, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        const int64_t begin = row * keys;
        backward_row<T>(grads + begin, from + begin, static_cast<T>(scale), keys, to + begin);
      }
    });
  });
  return result;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(examples, library) {
  library.def("masked_softmax(Tensor scores, Tensor? mask, float scale) -> Tensor");
  library.def("masked_softmax_backward(Tensor grad, Tensor weights, float scale) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(examples, CPU, library) {
  library.impl("masked_softmax", TORCH_BOX(&forward));
  library.impl("masked_softmax_backward", TORCH_BOX(&backward));
}
