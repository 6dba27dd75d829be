// Test only: step messages and results on a socket between two processes, each as size and bytes.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/copy_bytes.h"
#include "base/status.h"
#include "exec/runner.h"

namespace nereid::runtime {

// Instead of a step: waits for onboards and returns their statuses.
inline constexpr std::byte kWaitForOnboards[] = {std::byte{'o'}};

inline Status send_all(int socket, const void* data, size_t bytes) {
  for (const auto* from = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t sent = ::send(socket, from, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return unavailable("the other process does not listen");
    from += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return ok();
}

inline Status receive_all(int socket, void* data, size_t bytes) {
  for (auto* to = static_cast<char*>(data); bytes > 0;) {
    const ssize_t got = ::recv(socket, to, bytes, 0);
    if (got <= 0) return unavailable("the other process has gone");
    to += got;
    bytes -= static_cast<size_t>(got);
  }
  return ok();
}

inline Status send_bytes(int socket, std::span<const std::byte> bytes) {
  const uint64_t size = bytes.size();
  RETURN_IF_ERROR(send_all(socket, &size, sizeof(size)));
  return send_all(socket, bytes.data(), bytes.size());
}

inline StatusOr<std::vector<std::byte>> receive_bytes(int socket) {
  uint64_t size = 0;
  RETURN_IF_ERROR(receive_all(socket, &size, sizeof(size)));
  std::vector<std::byte> bytes(size);
  RETURN_IF_ERROR(receive_all(socket, bytes.data(), bytes.size()));
  return bytes;
}

// A step's result with its own memory.
struct OwnedResult {
  std::vector<Status> onboarded;
  struct Row {
    std::vector<kernels::SampleResult> drawn;
    std::vector<int32_t> path, likeliest;
    std::vector<kernels::TopToken> top;
    std::vector<float> logits;
    std::vector<BF16> hidden;
  };
  Status status;
  std::vector<Row> owned;
  std::vector<exec::RowResult> rows;  // point into `owned`
};

class ResultWriter {
 public:
  // `onboarded`: statuses since the last result.
  std::vector<std::byte> take(const StatusOr<exec::StepResult>& result,
                              const std::vector<Status>& onboarded = {}) {
    bytes_.clear();
    put(static_cast<uint64_t>(onboarded.size()));
    for (const Status& status : onboarded) put(status);
    put(result.status());
    if (!result.ok()) return bytes_;
    put(static_cast<uint64_t>(result->size()));
    for (const exec::RowResult& row : *result) {
      put(row.status);
      put_array(row.drawn);
      put_array(row.path);
      put_array(row.likeliest);
      put_array(row.top);
      put_array(row.logits);
      put_array(row.hidden);
    }
    return bytes_;
  }

 private:
  template <class T>
  void put(const T& value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof(T));
  }
  template <class T>
  void put_array(std::span<const T> values) {
    put(static_cast<uint64_t>(values.size()));
    const auto bytes = std::as_bytes(values);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void put(const Status& status) {
    put(static_cast<uint64_t>(status.code()));
    const std::string_view text = message(status);
    put_array(std::span(text.data(), text.size()));
  }

  std::vector<std::byte> bytes_;
};

class ResultReader {
 public:
  explicit ResultReader(std::span<const std::byte> bytes) : left_(bytes) {}

  OwnedResult read() {
    OwnedResult result;
    for (auto n = get<uint64_t>(); n > 0; --n) result.onboarded.push_back(get_status());
    result.status = get_status();
    if (!result.status.ok()) return result;
    result.owned.resize(get<uint64_t>());
    for (OwnedResult::Row& own : result.owned) {
      exec::RowResult& row = result.rows.emplace_back(exec::RowResult{.status = get_status()});
      row.drawn = own.drawn = get_array<kernels::SampleResult>();
      row.path = own.path = get_array<int32_t>();
      row.likeliest = own.likeliest = get_array<int32_t>();
      row.top = own.top = get_array<kernels::TopToken>();
      row.logits = own.logits = get_array<float>();
      row.hidden = own.hidden = get_array<BF16>();
    }
    return result;
  }

 private:
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, left_.data(), sizeof(T));
    left_ = left_.subspan(sizeof(T));
    return value;
  }
  template <class T>
  std::vector<T> get_array() {
    std::vector<T> values(get<uint64_t>());
    copy_bytes(values.data(), left_.data(), values.size() * sizeof(T));
    left_ = left_.subspan(values.size() * sizeof(T));
    return values;
  }
  Status get_status() {
    const auto code = static_cast<absl::StatusCode>(get<uint64_t>());
    const std::vector<char> text = get_array<char>();
    return {code, std::string(text.begin(), text.end())};
  }

  std::span<const std::byte> left_;
};

}  // namespace nereid::runtime
