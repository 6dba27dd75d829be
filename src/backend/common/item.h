// One item of a batched request: each tensor cut along its first dimension.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/common/triton.h"

namespace nereid::backend {

// A view; the request must outlive it.
class Item {
 public:
  // Item `index` of `batch`.
  Item(const Request& request, int64_t index, int64_t batch)
      : request_(request), index_(index), batch_(batch) {}

  // The item's part of the input; nullopt when the client did not send it. InvalidArgument, naming
  // the input, when the input cannot be divided into `batch` equal parts.
  StatusOr<std::optional<InputView>> input(std::string_view name) const;
  bool has(std::string_view name) const { return request_.has(name); }
  bool lacks(std::string_view name) const { return request_.lacks(name); }

  // Request::scalar() and values() for the item's part.
  template <class T>
  StatusOr<std::optional<T>> scalar(std::string_view name) const {
    if (lacks(name)) return std::optional<T>();
    return read_scalar<T>(name);
  }
  template <class T>
  StatusOr<std::optional<std::vector<T>>> values(std::string_view name) const {
    if (lacks(name)) return std::optional<std::vector<T>>();
    return read_values<T>(name);
  }
  StatusOr<std::optional<std::vector<std::string>>> strings(std::string_view name) const {
    if (lacks(name)) return std::optional<std::vector<std::string>>();
    return read_strings(name);
  }

  const Request& request() const { return request_; }
  int64_t index() const { return index_; }
  int64_t batch() const { return batch_; }

 private:
  template <class T>
  StatusOr<std::optional<T>> read_scalar(std::string_view name) const;
  template <class T>
  StatusOr<std::optional<std::vector<T>>> read_values(std::string_view name) const;
  StatusOr<std::optional<std::vector<std::string>>> read_strings(std::string_view name) const;

  const Request& request_;
  int64_t index_, batch_;
};

}  // namespace nereid::backend
