// One item's part of batched tensors.
#include "backend/common/item.h"

namespace nereid::backend {
StatusOr<std::optional<InputView>> Item::input(std::string_view name) const {
  ASSIGN_OR_RETURN(const InputView* whole, request_.input(name));
  if (whole == nullptr) return std::nullopt;
  std::optional view(*whole);
  if (batch_ == 1) return view;
  if (view->shape.empty() || view->shape[0] != batch_) return uneven(name, batch_);
  view->shape[0] = 1;
  if (view->datatype != TRITONSERVER_TYPE_BYTES) {
    const size_t size = view->bytes.size() / static_cast<size_t>(batch_);
    if (size * static_cast<size_t>(batch_) != view->bytes.size()) return uneven(name, batch_);
    view->bytes = view->bytes.substr(static_cast<size_t>(index_) * size, size);
    return view;
  }
  ASSIGN_OR_RETURN(view->bytes, request_.strings_of_item(name, index_, batch_));
  return view;
}

template <class T>
StatusOr<std::optional<std::vector<T>>> Item::read_values(std::string_view name) const {
  if (batch_ == 1) return request_.values<T>(name);
  ASSIGN_OR_RETURN(const auto view, input(name));
  if (!view) return std::nullopt;
  RETURN_IF_ERROR(request_.hold(view->bytes.size()));
  ASSIGN_OR_RETURN(auto out, values_of<T>(name, *view));
  return std::optional(std::move(out));
}

template <class T>
StatusOr<std::optional<T>> Item::read_scalar(std::string_view name) const {
  if (batch_ == 1) return request_.scalar<T>(name);
  ASSIGN_OR_RETURN(const auto view, input(name));
  if (!view) return std::nullopt;
  ASSIGN_OR_RETURN(const T value, value_of<T>(name, *view));
  return std::optional<T>(value);
}

template StatusOr<std::optional<int32_t>> Item::read_scalar(std::string_view) const;
template StatusOr<std::optional<uint64_t>> Item::read_scalar(std::string_view) const;
template StatusOr<std::optional<float>> Item::read_scalar(std::string_view) const;
template StatusOr<std::optional<bool>> Item::read_scalar(std::string_view) const;
template StatusOr<std::optional<std::vector<int32_t>>> Item::read_values(std::string_view) const;
template StatusOr<std::optional<std::vector<uint64_t>>> Item::read_values(std::string_view) const;
template StatusOr<std::optional<std::vector<float>>> Item::read_values(std::string_view) const;

StatusOr<std::optional<std::vector<std::string>>> Item::read_strings(std::string_view name) const {
  if (batch_ == 1) return request_.strings(name);
  ASSIGN_OR_RETURN(const auto view, input(name));
  if (!view) return std::nullopt;
  RETURN_IF_ERROR(request_.hold(held_as_strings(*view)));
  ASSIGN_OR_RETURN(const auto parts, strings_of(name, *view));
  return std::optional(std::vector<std::string>(parts.begin(), parts.end()));
}

}  // namespace nereid::backend
