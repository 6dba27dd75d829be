// The model's matrices that adapters change, for what depends on them (DoRA).
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

// The part of a product that io::Plan::modules[module] names, with an adapter: W + scale * b a.
struct ChangedWeight {
  int32_t module = 0;
  float scale = 0;
  std::span<const BF16> a;  // [rank, k]
  std::span<const BF16> b;  // [n, rank]
};

// Reads the engine file; for any thread.
class BaseWeights {
 public:
  // Errors as io::EngineFile::open().
  static StatusOr<std::shared_ptr<const BaseWeights>> open(const std::filesystem::path& engine);

  // Whether it is a matrix of a product; others are embeddings' and experts'.
  bool is_product(int32_t module) const;

  // Whether the matrix of a product or an embedding is `tensor`, rounded to bf16.
  bool equals(int32_t module, const io::StoredTensor& tensor) const;

  // The bias of a product's columns, [n]; empty: it has none.
  std::vector<float> bias(int32_t module) const;

  // The 2-norm of each row of a product's matrix, [n].
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
