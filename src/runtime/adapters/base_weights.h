// The model's matrices that adapters modify, for DoRA.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "io/checkpoint.h"
#include "io/engine_file.h"
#include "tensor/dtype.h"

namespace nereid::runtime {

// The modified matrix of io::Plan::modules[module]: W + scale * b a.
struct ChangedWeight {
  int32_t module = 0;
  float scale = 0;
  std::span<const BF16> a;  // [rank, k]
  std::span<const BF16> b;  // [n, rank]
};

// Reads the engine file; thread-safe.
class BaseWeights {
 public:
  // Errors as io::EngineFile::open().
  static StatusOr<std::shared_ptr<const BaseWeights>> open(const std::filesystem::path& engine);

  // Whether the module is a product's matrix (not an embedding's or experts').
  bool is_product(int32_t module) const;

  // Whether the matrix of a product or embedding equals `tensor` rounded to bf16.
  bool equals(int32_t module, const io::StoredTensor& tensor) const;

  // The bias of a product's columns, [n]; empty: none.
  std::vector<float> bias(int32_t module) const;

  // 2-norm of each row of W + scale * b a, [n].
  std::vector<float> row_lengths(const ChangedWeight& changed) const;

 private:
  struct Part {
    io::WeightId weight = io::kNone, bias = io::kNone;
    bool is_embedding = false;
  };

  explicit BaseWeights(io::EngineFile file);

  const io::EngineFile file_;
  std::vector<Part> parts_;  // by module
};

}  // namespace nereid::runtime
