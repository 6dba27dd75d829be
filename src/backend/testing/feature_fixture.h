// The tensorrt_llm model of a server with beams, called with token ids.
#pragma once

#include <algorithm>

#include "backend/testing/backend_fixture.h"
#include "base/testing/source_dir.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::backend {

inline Output ids_input(const char* name, const Ids& ids) {
  return make_output(name, {1, static_cast<int64_t>(ids.size())}, ids);
}
inline Output seed_input(uint64_t seed) {
  return {"random_seed",
          TRITONSERVER_TYPE_UINT64,
          {1, 1},
          std::string(reinterpret_cast<const char*>(&seed), sizeof(seed))};
}
// A list of words in its [1, 2, n] form.
inline Output words_input(const char* name, const std::vector<Ids>& words) {
  Ids flat, ends;
  for (const Ids& word : words) {
    flat.insert(flat.end(), word.begin(), word.end());
    ends.push_back(static_cast<int32_t>(flat.size()));
  }
  const auto width = static_cast<int64_t>(flat.size());
  ends.resize(flat.size(), -1);
  flat.insert(flat.end(), ends.begin(), ends.end());
  return make_output(name, {1, 2, width}, flat);
}

inline const std::vector<Output> kStop = {
    ids_input("input_ids", {0}), int_input("input_lengths", 0), int_input("request_output_len", 0),
    bool_input("stop", true)};

class FeatureTest : public BackendTest {
 protected:
  static void SetUpTestSuite() {
    start(server_, dir_, {{"max_beam_width", "4"}, {"iter_stats_max_iterations", "100"}});
    tokenizer_ = *text::Tokenizer::load(source_dir() + "/models/quickstart");
  }

  static Ids prompt() { return *tokenizer_->encode("What is machine learning?"); }

  // Calls the tensorrt_llm model, without the prompt in the output.
  static Conversation ask_ids(const Ids& ids, int32_t max_tokens, std::vector<Output> more = {}) {
    more.push_back(ids_input("input_ids", ids));
    more.push_back(int_input("input_lengths", static_cast<int32_t>(ids.size())));
    more.push_back(int_input("request_output_len", max_tokens));
    more.push_back(bool_input("exclude_input_in_output", true));
    Talk talk(server_, "tensorrt_llm", std::move(more));
    return talk.wait();
  }
  // The tokens of its only response.
  static Ids tokens_of(const Conversation& c) {
    EXPECT_TRUE(c.status.ok()) << c.status;
    EXPECT_EQ(c.outputs.size(), 1u);
    return c.outputs.empty() ? Ids() : elements<int32_t>(c.outputs[0], "output_ids");
  }
  static Ids generate(int32_t max_tokens, std::vector<Output> more = {}) {
    return tokens_of(ask_ids(prompt(), max_tokens, std::move(more)));
  }

  static inline std::shared_ptr<const text::Tokenizer> tokenizer_;
};

// The rows of a [1, rows, width] tensor, cut to the lengths in `outputs`.
inline std::vector<Ids> rows_of(const std::vector<Output>& outputs) {
  const Ids ids = elements<int32_t>(outputs, "output_ids");
  std::vector<Ids> rows;
  const Ids lengths = elements<int32_t>(outputs, "sequence_length");
  const size_t width = lengths.empty() ? 0 : ids.size() / lengths.size();
  for (size_t r = 0; r < lengths.size(); ++r) {
    const auto begin = ids.begin() + static_cast<ptrdiff_t>(r * width);
    rows.emplace_back(begin, begin + lengths[r]);
    EXPECT_TRUE(std::all_of(begin + lengths[r], begin + static_cast<ptrdiff_t>(width),
                            [](int32_t id) { return id == -1; }));
  }
  return rows;
}

}  // namespace nereid::backend
