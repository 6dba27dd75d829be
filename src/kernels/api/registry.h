// All kernels that a process can run: the CPU rows plus those of an opened device library.
#pragma once

#include <tuple>
#include <variant>

#include "kernels/api/kernel.h"
#include "kernels/api/ops.h"

namespace nereid::kernels {

template <class Variant>
struct OpsOf;
template <class... Ops>
struct OpsOf<std::variant<Ops...>> {
  using type = std::tuple<Ops..., FusedLinear, Sample>;
};
// Every op of a plan, what is made of some when a plan is bound, and sampling.
using AllOps = OpsOf<OpIn<Views>>::type;

template <class Tuple>
struct RegistryOf;
template <class... Ops>
struct RegistryOf<std::tuple<Ops...>> {
  std::tuple<Table<Ops>...> tables;

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
