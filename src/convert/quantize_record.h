// What a run of quantize_checkpoint() has written, so that a later one of the same kind goes on
// behind it. The files lie beside the new checkpoint until it is complete.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/status.h"
#include "convert/layer_rounding.h"
#include "convert/quantize_checkpoint.h"
#include "models/family.h"

namespace nereid::convert {

struct QuantizeRecord {
  size_t num_inputs = 0;  // of Selection::inputs that are done
  uint64_t bytes = 0;     // of tensors that are durable
  QuantizeProgress progress;
  ChangedVectors changed;
};

class RecordFile {
 public:
  // `key` says what is made of what, see quantize_key().
  RecordFile(std::filesystem::path dir, std::string key)
      : dir_(std::move(dir)), key_(std::move(key)) {}

  // Nothing where there is none, or one of another key or from a damaged file.
  std::optional<QuantizeRecord> read() const;
  Status write(const QuantizeRecord& record) const;

  // The rounded matrices of an input, [n, k] one behind the other, for sequential calibration.
  Status write_matrices(size_t input, std::span<const BF16> matrices) const;
  StatusOr<std::vector<BF16>> read_matrices(size_t input) const;

  // Removes all of the files: the directory is a checkpoint.
  void remove() const;

 private:
  std::filesystem::path matrices_path(size_t input) const;

  std::filesystem::path dir_;
  std::string key_;
};

// A hash of nereid's version, the options, the model and its weights.
std::string quantize_key(const QuantizeOptions& options, const models::Model& model,
                         const io::Checkpoint& checkpoint);

}  // namespace nereid::convert
