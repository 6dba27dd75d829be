// Runs ops, kernels and cases.
#include "kernels/testing/check.h"

#include <cstring>
#include <tuple>

#include "kernels/testing/cases.h"

namespace nereid::kernels::testing {
namespace {

// Calls f with a null pointer to the op named `name`.
template <class F>
StatusOr<Coverage> with_op(std::string_view name, F f) {
  StatusOr<Coverage> result = not_found("no op '{}'", name);
  const auto visit = [&]<class... Ops>(std::tuple<Ops...>*) {
    ((Ops::kName == name ? void(result = f(static_cast<Ops*>(nullptr))) : void()), ...);
  };
  visit(static_cast<AllOps*>(nullptr));
  return result;
}

template <class Op>
StatusOr<const Kernel<Op>*> find(const OpenedDevice& opened, const KernelId& id) {
  for (const Kernel<Op>& kernel : opened.registry.table<Op>())
    if (kernel.name == id.name) return &kernel;
  return not_found("no kernel '{}:{}'", id.op, id.name);
}

// The image after the kernel ran the parts of the split in order.
template <class Op>
StatusOr<Image> run_case(OpenedDevice& opened, const Kernel<Op>& kernel, const Case<Op>& c,
                         const Split& split) {
  const size_t bytes = c.before.bytes.size();
  ASSIGN_OR_RETURN(const Buffer device, opened.device->allocate(bytes));
  ASSIGN_OR_RETURN(const Buffer host, opened.device->allocate_host(bytes));
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, opened.device->create_stream());
  std::memcpy(host.data(), c.before.bytes.data(), bytes);
  ASSIGN_OR_RETURN(const std::unique_ptr<Event> event, stream->submit([&](Stream& s) -> Status {
    RETURN_IF_ERROR(s.copy(device.data(), host.data(), bytes));
    for (const auto& [begin, count] : split)
      RETURN_IF_ERROR(kernel.run(c.args(device.bytes(), begin, count), s));
    return s.copy(host.data(), device.data(), bytes);
  }));
  RETURN_IF_ERROR(event->wait());
  Image image;
  image.bytes.assign(host.bytes(), host.bytes() + bytes);
  return image;
}

template <class Op>
bool can_run(const OpenedDevice& opened, const Kernel<Op>& kernel, const Case<Op>& c,
             const Split& split) {
  alignas(256) std::byte base[1];  // aligned as an image; the address has no other effect
  for (const auto& [begin, count] : split)
    if (!kernel.can(c.args(base, begin, count), opened.device->info())) return false;
  return true;
}

template <class Op>
Status check_result(const Case<Op>& c, const Image& got, const CheckOptions& options,
                    double* worst) {
  std::vector<Region> written = c.outputs;
  written.insert(written.end(), c.scratch.begin(), c.scratch.end());
  RETURN_IF_ERROR(compare_rest(got, c.before, written));
  if (c.check) return c.check(c, got, options.operand_epsilon);
  for (const Region& region : c.outputs)
    RETURN_IF_ERROR(compare(got, c.after, region, options.operand_epsilon, worst));
  return ok();
}

template <class Op>
Status check_bits(const Case<Op>& c, const Image& a, const Image& b) {
  for (const Region& region : c.outputs) RETURN_IF_ERROR(compare_bits(a, b, region));
  return ok();
}

// Runs `check(kernel, case, coverage)` on every case that the kernel can run as a whole.
template <class Op, class Check>
StatusOr<Coverage> for_each_case(OpenedDevice& opened, const KernelId& id, Check check) {
  ASSIGN_OR_RETURN(const Kernel<Op>* kernel, find<Op>(opened, id));
  Coverage coverage;
  for (const Case<Op>& c : cases<Op>()) {
    ++coverage.num_cases;
    if (!can_run(opened, *kernel, c, {{0, c.tokens}})) continue;
    ++coverage.num_run;
    if (Status status = check(*kernel, c, coverage); !status.ok())
      return annotate(status, fmt::format("{}:{} on {}", id.op, id.name, c.name));
  }
  return coverage;
}

}  // namespace

std::vector<KernelId> list_kernels(const OpenedDevice& opened) {
  std::vector<KernelId> ids;
  const auto add = [&]<class Op>(const Table<Op>& table) {
    for (const Kernel<Op>& kernel : table)
      if (kernel.device == opened.device->info().kind)
        ids.push_back({std::string(Op::kName), std::string(kernel.name)});
  };
  std::apply([&](const auto&... tables) { (add(tables), ...); }, opened.registry.tables);
  return ids;
}

StatusOr<Coverage> check_against_ref(OpenedDevice& opened, const KernelId& id,
                                     const CheckOptions& options) {
  return with_op(id.op, [&]<class Op>(Op*) {
    return for_each_case<Op>(
        opened, id, [&](const Kernel<Op>& kernel, const Case<Op>& c, Coverage& coverage) -> Status {
          ASSIGN_OR_RETURN(const Image got, run_case(opened, kernel, c, {{0, c.tokens}}));
          return check_result(c, got, options, &coverage.worst);
        });
  });
}

StatusOr<Coverage> check_splits(OpenedDevice& opened, const KernelId& id) {
  return with_op(id.op, [&]<class Op>(Op*) {
    return for_each_case<Op>(
        opened, id, [&](const Kernel<Op>& kernel, const Case<Op>& c, Coverage&) -> Status {
          if (c.splits.empty()) return ok();
          ASSIGN_OR_RETURN(const Image whole, run_case(opened, kernel, c, {{0, c.tokens}}));
          // ref has no tiles: single tokens and the largest parts suffice.
          std::vector<Split> splits = c.splits;
          if (kernel.name == "ref" && splits.size() > 2) splits = {splits.front(), splits.back()};
          for (const Split& split : splits) {
            if (!can_run(opened, kernel, c, split)) continue;
            ASSIGN_OR_RETURN(const Image parts, run_case(opened, kernel, c, split));
            RETURN_IF_ERROR(annotate(
                check_bits(c, parts, whole),
                fmt::format("in {} parts, first of {}", split.size(), split.front().second)));
          }
          return ok();
        });
  });
}

StatusOr<Coverage> check_same(OpenedDevice& a, OpenedDevice& b, const KernelId& id) {
  return with_op(id.op, [&]<class Op>(Op*) {
    return for_each_case<Op>(a, id,
                             [&](const Kernel<Op>& kernel, const Case<Op>& c, Coverage&) -> Status {
                               const Split whole = {{0, c.tokens}};
                               ASSIGN_OR_RETURN(const Image first, run_case(a, kernel, c, whole));
                               ASSIGN_OR_RETURN(const Image second, run_case(b, kernel, c, whole));
                               return check_bits(c, first, second);
                             });
  });
}

}  // namespace nereid::kernels::testing
