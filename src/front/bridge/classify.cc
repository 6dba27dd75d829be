#include "front/bridge/classify.h"

#include <algorithm>
#include <numeric>

#include "front/bridge/number_types.h"

namespace nereid::front {
namespace {

// Calls `visit` with number `i` as its own type. False for types without an order.
template <class Visit>
bool visit_number(const Tensor& t, size_t i, Visit visit) {
  return visit_number_type(t.type, [&]<class T>(T) { visit(element_at<T>(t.bytes.data(), i)); });
}

// A score as double, for sorting.
StatusOr<double> read_value(const Tensor& t, size_t i) {
  double value = 0;
  if (visit_number(t, i, [&](auto number) { value = static_cast<double>(number); })) return value;
  return invalid_argument(
      "class result not available for output '{}' due to unsupported type "
      "'{}'",
      t.name, TRITONSERVER_DataTypeString(t.type));
}

std::string score_text(const Tensor& t, size_t i) {
  std::string text;
  visit_number(t, i, [&]<class T>(T number) {
    text = std::is_floating_point_v<T> ? fmt::format("{:f}", static_cast<double>(number))
                                       : std::to_string(number);
  });
  return text;
}

// Indices of the `kept` highest of `classes` scores, in descending order, stable. NaN sorts last.
StatusOr<std::vector<size_t>> best_of_row(const Tensor& t, size_t first, size_t classes,
                                          size_t kept) {
  HeldMemory held;
  RETURN_IF_ERROR(held.add(classes * (sizeof(double) + sizeof(size_t))));
  std::vector<double> keys(classes);
  for (size_t i = 0; i < classes; ++i) {
    ASSIGN_OR_RETURN(const double value, read_value(t, first + i));
    keys[i] = value == value ? value : -1e308;
  }
  std::vector<size_t> order(classes);
  std::iota(order.begin(), order.end(), size_t{0});
  std::partial_sort(
      order.begin(), order.begin() + static_cast<ptrdiff_t>(kept), order.end(),
      [&](size_t a, size_t b) { return keys[a] != keys[b] ? keys[a] > keys[b] : a < b; });
  order.resize(kept);
  return order;
}

// Appends an element and counts it: a number of four bytes may become a text of fifty.
Status append_counted(std::string_view text, Classes& out) {
  std::string& bytes = out.tensor.bytes;
  const size_t size = bytes.size() + sizeof(uint32_t) + text.size();
  if (size > bytes.capacity()) {
    const size_t more = std::max(size, size_t{8} << 10);
    RETURN_IF_ERROR(out.held->add(more));
    bytes.reserve(bytes.size() + more);
  }
  append_string_element(bytes, text);
  return ok();
}

}  // namespace

// The shape may be a client's, given back by the model, so the loops are bounded by
// the tensor's bytes.
StatusOr<Classes> classify(const Tensor& t, uint64_t num, bool batched) {
  const size_t element = TRITONSERVER_DataTypeByteSize(t.type);
  const size_t total = element == 0 ? 0 : t.bytes.size() / element;
  const size_t rows = batched && !t.shape.empty() ? static_cast<size_t>(t.shape[0]) : 1;
  const size_t classes = rows == 0 ? 0 : total / rows;
  const size_t kept = std::min<uint64_t>(num, classes);
  Classes out{{t.name, TRITONSERVER_TYPE_BYTES, {}, {}}, std::make_unique<HeldMemory>()};
  if (batched) out.tensor.shape.push_back(static_cast<int64_t>(rows));
  out.tensor.shape.push_back(static_cast<int64_t>(kept));
  if (element == 0) RETURN_IF_ERROR(read_value(t, 0).status());
  if (kept == 0) return out;
  for (size_t row = 0; row < rows; ++row) {
    const size_t first = row * classes;
    ASSIGN_OR_RETURN(const std::vector<size_t> best, best_of_row(t, first, classes, kept));
    for (const size_t i : best) {
      std::string text = fmt::format("{}:{}", score_text(t, first + i), i);
      if (i < t.labels.size() && !t.labels[i].empty()) text += ":" + t.labels[i];
      RETURN_IF_ERROR(append_counted(text, out));
    }
  }
  return out;
}

}  // namespace nereid::front
