// Kernel registry of the process: CPU rows and those of an opened device library.
#pragma once

#include <span>
#include <string_view>
#include <tuple>
#include <variant>

#include "kernels/api/kernel.h"
#include "kernels/api/ops.h"
#include "kernels/api/product_choices.h"

namespace nereid::kernels {

template <class Variant>
struct OpsOf;
template <class... Ops>
struct OpsOf<std::variant<Ops...>> {
  using type = std::tuple<Ops..., FusedLinear, CrossScores, Sample>;
};
// All plan ops, ops created at binding, and sampling.
using AllOps = OpsOf<OpIn<Views>>::type;

// Tuner of a device's product library; null: no library.
struct ProductTuner {
  struct Product {
    Linear problem;           // any number of rows, without addresses
    std::string_view kernel;  // kernel chosen for it
  };
  // Times the library's algorithms for the products that run in it. ResourceExhausted: memory is
  // missing; else the device's first error.
  StatusOr<AlgorithmChoices> (*measure)(std::span<const Product> products,
                                        Device& device) = nullptr;
  // Applies the choices to the stream's products. KernelChoices of another library version or
  // device are ignored (logged).
  void (*use)(const AlgorithmChoices& choices, Stream& stream) = nullptr;
};

template <class Tuple>
struct RegistryOf;
template <class... Ops>
struct RegistryOf<std::tuple<Ops...>> {
  std::tuple<Table<Ops>...> tables;
  ProductTuner tuner;

  template <class Op>
  const Table<Op>& table() const {
    return std::get<Table<Op>>(tables);
  }
  template <class Op>
  void add(const Table<Op>& rows) {
    auto& t = std::get<Table<Op>>(tables);
    t.insert(t.end(), rows.begin(), rows.end());
  }
  // Adds the Table<Op> of rows.operator()<Op>() for every op.
  template <class F>
  void add_all(F rows) {
    (add<Ops>(rows.template operator()<Ops>()), ...);
  }
};
using Registry = RegistryOf<AllOps>;

}  // namespace nereid::kernels
