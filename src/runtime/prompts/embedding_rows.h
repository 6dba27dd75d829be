// The target model's embedding table, for draft heads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "io/engine_file.h"
#include "nereid/request.h"
#include "tensor/dtype.h"

namespace nereid::runtime {

// Rows of an embedding table in host memory.
class EmbeddingRows {
 public:
  // InvalidArgument: the engine has no embedding table.
  static StatusOr<EmbeddingRows> open(const std::filesystem::path& engine);

  void add(TokenId token, std::vector<BF16>& out) const;
  int32_t width() const { return static_cast<int32_t>(table_.k); }

 private:
  explicit EmbeddingRows(io::EngineFile file) : file_(std::move(file)) {}
  io::EngineFile file_;
  kernels::WeightView table_;
};

}  // namespace nereid::runtime
