// What a model's products read when it computes a text.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "convert/quantize_checkpoint.h"
#include "exec/runner.h"
#include "kernels/open.h"

namespace nereid::cli {

struct CalibrationText {
  std::filesystem::path file;     // UTF-8
  int64_t num_sequences = 512;    // at most; spread evenly over the text
  int32_t sequence_tokens = 512;  // of each; at most what the model allows
};

// The model on this machine's CPU, with bf16 weights, beside a text. The engine is built on first
// use and cached; its products are those of the graph as the family built it.
class Calibration {
 public:
  // The device outlives it. InvalidArgument: the text has no tokens; errors of the model.
  static StatusOr<std::unique_ptr<Calibration>> open(const std::filesystem::path& model_dir,
                                                     const CalibrationText& text,
                                                     const kernels::OpenedDevice& device);

  // See convert::CollectInputs: computes each sequence, as far as the last of the products wanted.
  Status collect(const std::map<std::string, quant::InputStatistics*>& wanted);

  int64_t num_tokens() const;

 private:
  Calibration() = default;
  Status run(std::span<const int32_t> tokens);

  std::vector<std::vector<int32_t>> sequences_;
  std::unique_ptr<quant::ColumnProducts> products_;
  std::unique_ptr<exec::Runner> runner_;  // last: its steps use the products
};

}  // namespace nereid::cli
