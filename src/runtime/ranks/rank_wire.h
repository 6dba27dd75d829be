// Contents of messages between the leader of a model's ranks and a worker process: plain data of
// one program on one host, without versions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/copy_bytes.h"
#include "base/status.h"
#include "exec/runner.h"
#include "tensor/device.h"

namespace nereid::runtime {

// A struct with memory of its own has one list of its fields for both directions, a template
// `fields(wire, value)` that calls the Writer or Reader with them. Others are copied as bytes.

// Appends values to a message; keeps its memory.
class Writer {
 public:
  void clear() { bytes_.clear(); }
  std::span<const std::byte> bytes() const { return bytes_; }

  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }

 private:
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_trivially_copyable_v<T>)
      put_raw(&value, sizeof(value));
    else
      fields(*this, value);
  }
  void put(const Status& status) { (*this)(static_cast<int32_t>(status.code()), message(status)); }
  void put(std::string_view text) { put(std::span(text.data(), text.size())); }
  void put(const std::string& text) { put(std::string_view(text)); }
  template <class T>
  void put(std::span<const T> values) {
    put(static_cast<uint64_t>(values.size()));
    put_raw(values.data(), values.size_bytes());
  }
  template <class T>
  void put(const std::vector<T>& values) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      put(std::span(values));
    } else {
      put(static_cast<uint64_t>(values.size()));
      for (const T& value : values) put(value);
    }
  }
  void put_raw(const void* data, size_t bytes) {
    const auto* const from = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), from, from + bytes);
  }

  std::vector<std::byte> bytes_;
};

// Reads them back. Values behind the end are zeros, and ok() is false then.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}

  bool ok() const { return ok_; }
  // DataLoss unless everything was read, and nothing more.
  Status finish() const {
    if (ok_ && left_.empty()) return nereid::ok();
    return data_loss("a message of ranks is {}", ok_ ? "too long" : "cut off");
  }

  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }

 private:
  template <class T>
  void get(T& value) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      value = T{};
      if (const auto from = take(sizeof(T)); !from.empty())
        std::memcpy(static_cast<void*>(&value), from.data(), sizeof(T));
    } else {
      fields(*this, value);
    }
  }
  void get(Status& status) {
    int32_t code = 0;
    std::string text;
    (*this)(code, text);
    status = Status(static_cast<absl::StatusCode>(code), text);
  }
  void get(std::string& text) {
    uint64_t size = 0;
    get(size);
    const auto from = take(size);
    text.assign(reinterpret_cast<const char*>(from.data()), from.size());
  }
  template <class T>
  void get(std::vector<T>& values) {
    uint64_t n = 0;
    get(n);
    constexpr bool kIsCopied = std::is_trivially_copyable_v<T>;
    if (n > left_.size() / (kIsCopied ? sizeof(T) : 1)) ok_ = false;
    if constexpr (kIsCopied) {
      values.resize(ok_ ? n : 0);
      copy_bytes(values.data(), take(values.size() * sizeof(T)).data(), values.size() * sizeof(T));
    } else {
      values.clear();
      for (uint64_t i = 0; ok_ && i < n; ++i) get(values.emplace_back());
    }
  }
  std::span<const std::byte> take(size_t bytes) {
    if (bytes > left_.size()) ok_ = false;
    if (!ok_) return {};
    const auto taken = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return taken;
  }

  std::span<const std::byte> left_;
  bool ok_ = true;
};

// kLoad.
struct RankLoad {
  std::string engine;     // path
  uint64_t checksum = 0;  // engine_checksum(); 0: not compared
  exec::RunnerLimits limits;
  kernels::KernelChoices forced;
};
void put(Writer& to, const RankLoad& load);
StatusOr<RankLoad> get_load(std::span<const std::byte> message);

// kHello.
void put(Writer& to, const StatusOr<DeviceInfo>& info);
StatusOr<DeviceInfo> get_device(std::span<const std::byte> message);

// kLoaded: what does not change about a runner.
struct RankModel {
  exec::RunnerLimits limits;
  std::vector<exec::CacheGroup> groups;
  std::vector<exec::MemoryItem> memory;
  int32_t vocab_size = 0, hidden_size = 0, num_states = 0, embedding_width = 0;
  bool weighs_drafts = false, draws = true;
};
RankModel model_of(const exec::Runner& runner);
void put(Writer& to, const StatusOr<RankModel>& model);
StatusOr<RankModel> get_model(std::span<const std::byte> message);

// kResult: a step's result with memory of its own, used again for the next one.
struct StepReport {
  uint64_t history = 0;  // see next_history()
  std::vector<exec::RankFigures> figures;
  std::vector<Status> onboarded;  // since the last report
  Status status;
  std::vector<exec::RowResult> rows;  // point into the memory

  struct Row {
    std::vector<kernels::SampleResult> drawn;
    std::vector<int32_t> path, likeliest;
    std::vector<kernels::TopToken> top;
    std::vector<float> logits;
    std::vector<BF16> hidden;
  };
  std::vector<Row> memory;
};
void put_report(Writer& to, uint64_t history, const std::vector<exec::RankFigures>& figures,
                const std::vector<Status>& onboarded, const StatusOr<exec::StepResult>& result);
Status get_report(std::span<const std::byte> message, StepReport& report);

// kFollow: accepted drafts.
void put_paths(Writer& to, exec::StepResult drawn);
Status get_paths(std::span<const std::byte> message, StepReport& report);

// kOnboarded.
void put_statuses(Writer& to, const std::vector<Status>& statuses);
Status get_statuses(std::span<const std::byte> message, std::vector<Status>& statuses);

// kProfiled.
void put_times(Writer& to, const std::vector<exec::OpTime>& times);
Status get_times(std::span<const std::byte> message, std::vector<exec::OpTime>& times);

// Hash of all step messages so far; ranks in step have the same one.
uint64_t next_history(uint64_t history, std::span<const std::byte> message);

}  // namespace nereid::runtime
