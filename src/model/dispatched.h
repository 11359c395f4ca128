#pragma once
// Kernels of ours as operators of the dispatcher: a model that is traced for compiling then shows
// each as one operator, which it would not where they are called directly.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>

#include <optional>
#include <string>

namespace trainsuite {

/// The operator trainsuite::`name` with this signature.
template <class Signature>
auto dispatched(const char* name) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string("trainsuite::") + name).c_str(), "")
      .typed<Signature>();
}

/// Calls below autograd: the autograd functions that call them know the gradients. Spares the
/// boxed fallback, too.
using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

/// Operators cannot return undefined tensors: what is not wanted is one without elements.
inline at::Tensor nothing_like(const at::Tensor& tensor) {
  return at::empty({0}, tensor.options());
}
/// A result for tracing: contiguous, of the tensor's shape and type.
inline at::Tensor shaped_like(const at::Tensor& tensor, bool wanted = true) {
  return wanted ? at::empty(tensor.sizes(), tensor.options()) : nothing_like(tensor);
}
inline at::Tensor or_undefined(const at::Tensor& tensor, bool wanted) {
  return wanted ? tensor : at::Tensor();
}
inline std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
}

}  // namespace trainsuite
