// A client of the C API for tests: a server over a scratch repository, and calls that
// record their responses.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/wait.h"
#include "triton/core/tritonserver.h"

namespace nereid::server {

// Code and message of an error, which is deleted; code -1 = success.
struct Outcome {
  explicit Outcome(TRITONSERVER_Error* error);
  int code = -1;
  std::string text;
  bool ok() const { return code < 0; }
};

class TestServer {
 public:
  // Pairs of model name and config.pbtxt; each model gets a version folder 1.
  explicit TestServer(const std::vector<std::pair<std::string, std::string>>& models,
                      unsigned exit_timeout_s = 10, bool exit_on_error = true);
  // A server over an existing repository; `set` may change the options first.
  TestServer(const std::filesystem::path& repository,
             const std::function<void(TRITONSERVER_ServerOptions*)>& set);
  ~TestServer();
  TRITONSERVER_Server* get() const { return server_; }
  const Outcome& started() const { return started_; }
  std::string metrics() const;

 private:
  void start(const std::filesystem::path& repository,
             const std::function<void(TRITONSERVER_ServerOptions*)>& set);
  std::filesystem::path dir_;  // removed by the destructor; empty: not owned
  TRITONSERVER_Server* server_ = nullptr;
  Outcome started_{nullptr};
};

struct TestReply {
  int code = -1;  // error code of the response, -1 = result
  std::string text;
  std::vector<int32_t> out;
  std::string first_class;  // for an output with class names
  bool is_final = false, is_empty = false;
  std::thread::id thread;  // that delivered it
};

// One request with input IN, of shape [n] or (batched) [1, n]. wait() before the destructor.
class TestCall {
 public:
  TestCall(TRITONSERVER_Server* server, const std::string& model, std::vector<int32_t> values,
           const std::string& id = "", bool batched = false);
  ~TestCall();
  TRITONSERVER_InferenceRequest* request() const { return request_; }
  TRITONSERVER_InferenceRequest* give_up_request() { return std::exchange(request_, nullptr); }
  Outcome send(TRITONSERVER_InferenceTrace* trace = nullptr);
  // Sends as our front ends do: quick models may run before this returns.
  Outcome send_to_run_here();
  void cancel();
  // Output buffers come from `allocator`; `userp` is passed to its functions.
  void use_allocator(TRITONSERVER_ResponseAllocator* allocator, void* userp);
  // Waits for FINAL and release; false after a minute.
  bool wait();
  // Responses with content, in order; complete after wait().
  std::vector<TestReply> replies() const;
  int num_finals() const { return num_finals_; }
  int num_releases() const { return num_releases_; }
  std::vector<int32_t> joined() const;  // all outputs, in order

  Outcome created{nullptr};

 private:
  static void on_response(TRITONSERVER_InferenceResponse* response, const uint32_t flags,
                          void* self);
  static void on_release(TRITONSERVER_InferenceRequest*, const uint32_t, void* self);

  TRITONSERVER_Server* server_;
  TRITONSERVER_InferenceRequest* request_ = nullptr;
  std::vector<int32_t> values_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TestReply> replies_;
  int num_finals_ = 0, num_releases_ = 0;
};

// An hour in microseconds, for timeouts that a test never reaches.
inline const std::string kAnHour = "3600000000";

// Sets the log file of this process; "": none.
void set_log_file(const std::string& path);

// The text of a message, which is deleted.
std::string take_text(TRITONSERVER_Message* message);

// The config.pbtxt of a model of the test backend.
std::string test_model(const std::string& behavior, const std::string& more = "");

}  // namespace nereid::server
