// A fake of libtritonserver for tests: the TRITONSERVER_* calls that the front uses, with three
// scripted models. Linked into the test binary instead of the library.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "triton/core/tritonserver.h"

namespace nereid::front {

// Models: "tensorrt_llm" streams `script` token by token (up to request_output_len, ends at
// end_id), sequence s of num_return_sequences starting s tokens into it; beams come at once; with
// "pooling" it answers with [sum of the ids, their number, 1 for mean else 0]; "preprocessing" only
// has a configuration; "types" answers with its inputs renamed OUT_*, and with parameter "fail" =
// code sends an error, "replies" = n sends n responses.
// An answer of the scripted speech model.
struct HeardTokens {
  std::vector<int32_t> tokens;
  std::vector<float> log_probs;  // output_log_probs, else prompt_log_probs
  std::vector<float> attention;  // alignment_scores; empty: none
  std::vector<int64_t> attention_shape;
  float sum = 0;  // cum_log_probs; 0: none
  bool fails = false;
};

struct FakeTriton {
  static FakeTriton& get();
  // Resets to the state at start.
  void reset();

  std::mutex mutex;
  std::vector<int32_t> script;
  std::vector<int32_t> last_prompt;
  std::string last_inputs;                             // "name[shape]" of the last request, sorted
  std::map<std::string, std::string> last_bytes;       // by input of the last request
  std::vector<std::pair<std::string, int64_t>> usage;  // for requests with nereid_usage
  std::string metrics;                                 // families beside nv_fake
  int fail_after = -1;                                 // tokens before an error response
  std::string tokenizer_dir;
  std::string lora_load_dir;                 // the engine's parameter
  std::string tokenizer_hash;                // of the loaded "preprocessing"; "": not shown
  std::string engine_name = "tensorrt_llm";  // another name of that model
  std::vector<std::string> lacked_inputs;    // inputs absent in an older configuration of it
  // The engine as a speech model: called with the bytes of each request's inputs, on the thread of
  // the request. Null: it is a language model.
  using Inputs = std::map<std::string, std::string>;
  std::function<HeardTokens(const Inputs&)> hear;
  std::atomic<int> picture_patch_width{0};  // above 0: the engine takes pictures
  bool has_encoder = false;                 // the engine as an encoder-decoder of text
  std::atomic<int> num_heard{0}, num_hearing{0}, most_hearing{INT_MAX};  // more are refused
  std::atomic<int> max_tokens_now{INT_MAX};  // a request waits for more, or for its cancellation
  std::atomic<int> max_seq_len{64};
  std::atomic<int> embedding_size{3};
  // Prompts pooled at a time, more are refused; each waits until that many have been.
  std::atomic<int> max_pooled{INT_MAX}, num_pooled{0}, num_refused{0}, refusals_awaited{0};
  std::atomic<bool> ready{true};
  std::atomic<int> num_configs_read{0};
  std::atomic<bool> queue_full{false};
  std::atomic<bool> types_is_decoupled{false};
  std::atomic<bool> hold_types{false};  // requests to it with the parameter "waits" wait
  std::atomic<int> num_cancelled{0};
  std::atomic<int> num_live{0};       // existing request objects
  std::atomic<int> num_responses{0};  // existing response objects
  std::atomic<int> num_sent{0};       // responses passed to the front
  std::atomic<bool> hold_loads{false};
  std::atomic<bool> hold_live{false};   // blocks the thread in ServerIsLive
  std::atomic<int> num_asking_live{0};  // number of those threads
  std::atomic<int> num_loading{0}, num_loaded{0};
  std::atomic<uint64_t> last_tenant{0};  // of the last request
  std::atomic<int> load_thread{0};       // the last one's id
};

TRITONSERVER_Server* fake_server();

}  // namespace nereid::front
