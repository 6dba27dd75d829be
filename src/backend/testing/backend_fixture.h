// A server over the quick-start model in a repository filled from our templates, and calls to it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "backend/common/infer_call.h"
#include "base/file.h"
#include "base/json.h"
#include "base/testing/source_dir.h"

namespace nereid::backend {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

// Fills the placeholders given; the rest stay unfilled, which means the default. `set`: a
// folder of all_models.
inline void write_repository(const fs::path& dir, const std::map<std::string, std::string>& values,
                             const std::string& set = "inflight_batcher_llm") {
  for (const auto& entry : fs::directory_iterator(source_dir() + "/all_models/" + set)) {
    std::string text = *read_file(entry.path() / "config.pbtxt");
    for (const auto& [name, value] : values) {
      for (size_t at; (at = text.find("${" + name + "}")) != std::string::npos;) {
        text.replace(at, name.size() + 3, value);
      }
    }
    const fs::path to = dir / entry.path().filename();
    fs::create_directories(to / "1");
    ASSERT_TRUE(write_file_atomic(to / "config.pbtxt", text).ok());
  }
}

// Replaces every `from` by `to` in a model's configuration.
inline void edit_config(const fs::path& model, const std::string& from, const std::string& to) {
  std::string text = *read_file(model / "config.pbtxt");
  ASSERT_NE(text.find(from), std::string::npos) << from;
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  ASSERT_TRUE(write_file_atomic(model / "config.pbtxt", text).ok());
}
// Removes every line that contains `part`.
inline void drop_lines(const fs::path& model, const std::string& part) {
  const std::string text = *read_file(model / "config.pbtxt");
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const std::string line = text.substr(begin, end - begin);
    if (line.find(part) == std::string::npos) kept += line;
    begin = end;
  }
  ASSERT_NE(kept, text) << part;
  ASSERT_TRUE(write_file_atomic(model / "config.pbtxt", kept).ok());
}

struct Conversation {
  Status status;                   // status of the first error
  std::vector<std::string> texts;  // text_output of each response
  std::vector<std::vector<Output>> outputs;
  int num_finals = 0;
  std::string joined() const {
    std::string all;
    for (const auto& text : texts) all += text;
    return all;
  }
};

inline Output text_input(const char* name, const std::vector<std::string>& words) {
  return make_output(name, {1, static_cast<int64_t>(words.size())}, words);
}
inline Output int_input(const char* name, int32_t value) {
  return make_output(name, {1, 1}, std::vector<int32_t>{value});
}
inline Output float_input(const char* name, float value) {
  return make_output(name, {1, 1}, std::vector<float>{value});
}
inline Output bool_input(const char* name, bool value) {
  return {name, TRITONSERVER_TYPE_BOOL, {1, 1}, std::string(1, value ? '\1' : '\0')};
}

inline std::string first_string(const std::string& bytes) {
  uint32_t length = 0;
  if (bytes.size() < sizeof(length)) return "<none>";
  std::memcpy(&length, bytes.data(), sizeof(length));
  return bytes.substr(sizeof(length), length);
}

// A call that is complete when wait() returns; wait once. Status objects are not shared between
// threads: ThreadSanitizer does not see their last release, in another library.
class Talk {
 public:
  Talk(TRITONSERVER_Server* server, const std::string& model, std::vector<Output> inputs,
       const std::string& id = "test", uint64_t tenant = 0) {
    auto call = InferCall::start(server, model, id, tenant, std::move(inputs),
                                 [this](Reply reply) { take(std::move(reply)); });
    if (call.ok()) {
      call_ = *std::move(call);
    } else {
      result_.status = call.status();
    }
  }
  void cancel() { call_->cancel(); }
  Conversation wait() {
    std::unique_lock lock(mutex_);
    if (call_ == nullptr) return std::move(result_);
    const auto is_over = [&] { return result_.num_finals > 0; };
    if (!changed_.wait_for(lock, std::chrono::seconds(60), is_over)) {
      ADD_FAILURE() << "a call is not over after 60 s";
      call_->cancel();
      changed_.wait(lock, is_over);  // callbacks of the call use this object
    }
    return std::move(result_);
  }
  bool is_over() {
    std::lock_guard lock(mutex_);
    return call_ == nullptr || result_.num_finals > 0;
  }
  // Waits for `count` responses with outputs. False: the call ended before.
  bool wait_for_outputs(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60),
                      [&] { return result_.outputs.size() >= count || result_.num_finals > 0; });
    return result_.outputs.size() >= count;
  }
  size_t num_outputs() {
    std::lock_guard lock(mutex_);
    return result_.outputs.size();
  }
  void wait_for_text() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return !result_.texts.empty(); });
  }

 private:
  void take(Reply reply) {
    std::lock_guard lock(mutex_);
    if (!reply.status.ok() && result_.status.ok()) result_.status = std::move(reply.status);
    for (const auto& output : reply.outputs) {
      if (output.name == "text_output") result_.texts.push_back(first_string(output.bytes));
    }
    if (!reply.outputs.empty()) result_.outputs.push_back(std::move(reply.outputs));
    result_.num_finals += reply.is_final;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  Conversation result_;
  std::shared_ptr<InferCall> call_;
};

class BackendTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { start(server_, dir_, {}); }
  static void TearDownTestSuite() { stop(server_, dir_); }

  // Changes the repository's folder before it is loaded.
  using Edit = std::function<void(const fs::path&)>;

  static void start(TRITONSERVER_Server*& server, fs::path& dir,
                    std::map<std::string, std::string> values, const Edit& edit = nullptr) {
    const Status status = try_to_start(server, dir, std::move(values), edit);
    ASSERT_TRUE(status.ok()) << status;
  }
  static Status try_to_start(TRITONSERVER_Server*& server, fs::path& dir,
                             std::map<std::string, std::string> values,
                             const Edit& edit = nullptr) {
    std::string name = (fs::temp_directory_path() / "nereid-backend-XXXXXX").string();
    dir = mkdtemp(name.data());
    const std::string model = source_dir() + "/models/quickstart";
    values.merge(std::map<std::string, std::string>{{"triton_backend", "tensorrtllm"},
                                                    {"triton_max_batch_size", "4"},
                                                    {"decoupled_mode", "true"},
                                                    {"preprocessing_instance_count", "1"},
                                                    {"postprocessing_instance_count", "1"},
                                                    {"bls_instance_count", "1"},
                                                    {"engine_dir", model},
                                                    {"tokenizer_dir", model},
                                                    {"num_threads", "2"},
                                                    {"max_tokens_in_paged_kv_cache", "8192"},
                                                    {"cache_dir", (dir / ".cache").string()},
                                                    {"logits_datatype", "TYPE_FP32"}});
    write_repository(dir, values);
    if (edit != nullptr) edit(dir);
    TRITONSERVER_ServerOptions* options = nullptr;
    TRITONSERVER_ServerOptionsNew(&options);
    TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, dir.c_str());
    TRITONSERVER_ServerOptionsSetBackendDirectory(options, (build_dir() + "/backends").c_str());
    const Status status = take(TRITONSERVER_ServerNew(&server, options));
    TRITONSERVER_ServerOptionsDelete(options);
    return status;
  }
  static void stop(TRITONSERVER_Server*& server, const fs::path& dir) {
    if (server != nullptr) {
      EXPECT_TRUE(take(TRITONSERVER_ServerStop(server)).ok());
      TRITONSERVER_ServerDelete(server);
    }
    server = nullptr;
    fs::remove_all(dir);
  }

  static Conversation ask(const std::string& model, const std::string& prompt, int32_t max_tokens,
                          std::vector<Output> more = {}) {
    more.push_back(text_input("text_input", {prompt}));
    more.push_back(int_input("max_tokens", max_tokens));
    Talk talk(server_, model, std::move(more));
    return talk.wait();
  }

  static constexpr const char* kPrompt = "What is machine learning?";

  static inline TRITONSERVER_Server* server_ = nullptr;
  static inline fs::path dir_;
};

// Elements of a fixed-size output; empty when the response has none of that name.
template <class T>
std::vector<T> elements(const std::vector<Output>& outputs, std::string_view name) {
  std::vector<T> out;
  for (const auto& output : outputs) {
    if (output.name != name) continue;
    out.resize(output.bytes.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), output.bytes.data(), out.size() * sizeof(T));
  }
  return out;
}

// The Prometheus page.
inline std::string metrics_page(TRITONSERVER_Server* server) {
  TRITONSERVER_Metrics* metrics = nullptr;
  TRITONSERVER_ServerMetrics(server, &metrics);
  const char* base = nullptr;
  size_t size = 0;
  TRITONSERVER_MetricsFormatted(metrics, TRITONSERVER_METRIC_PROMETHEUS, &base, &size);
  std::string text(base, size);
  TRITONSERVER_MetricsDelete(metrics);
  return text;
}
// The value of the first series with this prefix, labels included.
inline double metric(const std::string& page, const std::string& series) {
  const size_t at = page.find("\n" + series);
  EXPECT_NE(at, std::string::npos) << series;
  if (at == std::string::npos) return NAN;
  const size_t space = page.find("} ", at);
  return std::strtod(page.c_str() + space + 2, nullptr);
}

inline Shape shape_of(const std::vector<Output>& outputs, std::string_view name) {
  for (const auto& output : outputs) {
    if (output.name == name) return output.shape;
  }
  return {};
}

}  // namespace nereid::backend
