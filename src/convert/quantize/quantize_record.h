// Progress record of quantize_checkpoint(), for resuming. Its files are in the output directory
// until it is complete.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/status.h"
#include "convert/quantize/layer_rounding.h"
#include "convert/quantize/quantize_checkpoint.h"
#include "models/family.h"

namespace nereid::convert {

struct QuantizeRecord {
  size_t num_inputs = 0;  // finished inputs of Selection::inputs
  uint64_t bytes = 0;     // durable bytes of tensors
  QuantizeProgress progress;
  ChangedVectors changed;
};

class RecordFile {
 public:
  // `key`: see quantize_key().
  RecordFile(std::filesystem::path dir, std::string key)
      : dir_(std::move(dir)), key_(std::move(key)) {}

  // No value: no record, another key, or a damaged file.
  std::optional<QuantizeRecord> read() const;
  Status write(const QuantizeRecord& record) const;

  // The rounded matrices of an input, concatenated [n, k], for sequential calibration.
  Status write_matrices(size_t input, std::span<const BF16> matrices) const;
  StatusOr<std::vector<BF16>> read_matrices(size_t input) const;

  // Removes all files: the directory is a complete checkpoint.
  void remove() const;

 private:
  std::filesystem::path matrices_path(size_t input) const;

  std::filesystem::path dir_;
  std::string key_;
};

// Hash of nereid's version, the options, the model and its weights.
std::string quantize_key(const QuantizeOptions& options, const models::Model& model,
                         const io::Checkpoint& checkpoint);

}  // namespace nereid::convert
