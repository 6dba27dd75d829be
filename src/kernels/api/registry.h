// All kernels that a process can run: the CPU rows plus those of an opened device library.
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
  using type = std::tuple<Ops..., FusedLinear, Sample>;
};
// Every op of a plan, what is made of some when a plan is bound, and sampling.
using AllOps = OpsOf<OpIn<Views>>::type;

// How a device chooses among the algorithms of its library of products; null: it has none.
struct ProductTuner {
  struct Product {
    Linear problem;           // of any number of rows, without addresses
    std::string_view kernel;  // the row chosen for it
  };
  // Times what the library offers for those of the products that are left to it. ResourceExhausted
  // when the device lacks the memory, otherwise its first error.
  StatusOr<ProductChoices> (*measure)(std::span<const Product> products, Device& device) = nullptr;
  // From now on the stream's products take these algorithms, where the library offers them. Choices
  // of another library or device are not used, which the log says.
  void (*use)(const ProductChoices& choices, Stream& stream) = nullptr;
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
  // Adds, for every op, the Table<Op> that rows.operator()<Op>() gives.
  template <class F>
  void add_all(F rows) {
    (add<Ops>(rows.template operator()<Ops>()), ...);
  }
};
using Registry = RegistryOf<AllOps>;

}  // namespace nereid::kernels
