// For tests: plans interpreted call by call with the reference kernels.
#pragma once

#include <cmath>
#include <utility>
#include <variant>
#include <vector>

#include "io/engine_file.h"
#include "kernels/ref/ref.h"

namespace nereid::convert {

// One sequence, one thread; arenas are filled with garbage to expose reads of unwritten memory.
class Interpreter {
 public:
  static constexpr int32_t kBlockTokens = 32, kMaxTokens = 256;

  explicit Interpreter(const io::EngineFile& engine) : engine_(engine), plan_(engine.plan()) {
    const io::ModelFacts& m = plan_.model;
    arena_[0].assign(plan_.arena_bytes_per_row[0] * kMaxTokens, std::byte{0x7f});
    arena_[1].assign(plan_.arena_bytes_per_row[1] * kMaxSampled, std::byte{0x7f});
    const size_t cache = size_t{kMaxTokens} * m.num_kv_heads * m.head_dim;
    k_cache_.assign(m.num_layers, std::vector<BF16>(cache));
    v_cache_ = k_cache_;
    for (int32_t i = 0; i < kMaxTokens / kBlockTokens; ++i) blocks_.push_back(i);
    for (const io::RopeTable& rope : m.ropes) {
      std::vector<float>& table = ropes_.emplace_back();
      for (int32_t p = 0; p < kMaxTokens; ++p)
        for (const auto f : {0, 1})
          for (const float w : rope.inverse_frequencies) {
            const float angle = static_cast<float>(p) * w;
            table.push_back((f ? std::sin(angle) : std::cos(angle)) * rope.attention_factor);
          }
    }
  }

  // Logits after the last of `tokens`, which continue those of earlier calls.
  std::vector<float> run(const std::vector<int32_t>& tokens) {
    begin(tokens);
    run_to_exchange();
    return logits();
  }

  // A step in parts, for plans of ranks.
  void begin(const std::vector<int32_t>& tokens) {
    next_ = 0;
    tokens_ = tokens;
    n_ = static_cast<int64_t>(tokens.size());
    positions_.clear();
    for (int64_t i = 0; i < n_; ++i) positions_.push_back(length_ + static_cast<int32_t>(i));
    length_ += static_cast<int32_t>(n_);
    row_begin_ = {0, static_cast<int32_t>(n_)}, row_of_token_.assign(tokens.size(), 0);
    logit_tokens_ = {static_cast<int32_t>(n_ - 1)};
  }
  // Runs calls up to the next exchange; null: up to the end.
  const io::Op* run_to_exchange() {
    for (; next_ < plan_.calls.size(); ++next_) {
      const io::Op& op = plan_.calls[next_].op;
      if (std::visit([&](const auto& x) { return !execute(x); }, op)) return &op;
    }
    return nullptr;
  }
  void skip_exchange() { ++next_; }
  std::vector<float> logits() const {
    const View logits = value(plan_.logits);
    return {logits.row<float>(0), logits.row<float>(0) + logits.cols};
  }
  const io::Plan& plan() const { return plan_; }

  // Value lookup for kernels::look_up().
  View value(io::ValueId id) const {
    const io::Value& v = plan_.values[id];
    const bool sampled = v.extent == io::RowCount::kSampled;
    std::byte* base = arena_[sampled].data() + v.offset * (sampled ? kMaxSampled : kMaxTokens);
    return {base + v.column * static_cast<int64_t>(size_of(v.dtype)), v.dtype, sampled ? 1 : n_,
            v.cols, v.stride};
  }
  kernels::WeightView weight(io::WeightId id) const { return engine_.weight(id); }
  kernels::AnglesView angles(int32_t id) const {
    const auto size = plan_.model.ropes[id].inverse_frequencies.size();
    return {ropes_[id].data(), static_cast<int64_t>(2 * size)};
  }
  template <class Op>
  kernels::CacheView cache(int32_t layer, const Op& op) const {
    int32_t window = 0;
    if constexpr (requires { op.window; }) window = op.window;
    return {.keys = k_cache_[layer].data(),
            .values = v_cache_[layer].data(),
            .block_stride = int64_t{op.heads.num_kv} * kBlockTokens * op.heads.dim,
            .block_tokens = kBlockTokens,
            .window = window};
  }

 private:
  static constexpr int64_t kMaxSampled = 4;

  // False: an exchange, not run.
  template <class Op>
  bool execute(const Op& ids) const {
    if constexpr (kernels::kIsExchange<Op>)
      return false;
    else
      return compute(ids), true;
  }
  template <class Op>
  void compute(const Op& ids) const {
    auto op = kernels::look_up(ids, *this);
    if constexpr (requires { op.step; })
      op.step = {.tokens = tokens_.data(),
                 .positions = positions_.data(),
                 .row_of_token = row_of_token_.data(),
                 .row_begin = row_begin_.data(),
                 .block_table = blocks_.data(),
                 .logit_tokens = logit_tokens_.data(),
                 .num_rows = 1,
                 .max_blocks = static_cast<int32_t>(blocks_.size())};
    reference(op);
  }

  const io::EngineFile& engine_;
  const io::Plan& plan_;
  mutable std::vector<std::byte> arena_[2];
  mutable std::vector<std::vector<BF16>> k_cache_, v_cache_;
  std::vector<std::vector<float>> ropes_;
  std::vector<int32_t> blocks_, tokens_, positions_, row_begin_, row_of_token_, logit_tokens_;
  int64_t n_ = 0;
  int32_t length_ = 0;
  size_t next_ = 0;  // call
};

}  // namespace nereid::convert
