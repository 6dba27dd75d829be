// What a model's products read when it computes a text.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "convert/quantize_checkpoint.h"
#include "convert/rank_format.h"
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
  // The device outlives it. `cache_dir`: where the engine is kept; empty: where all are.
  // InvalidArgument: the text has no tokens; errors of the model.
  static StatusOr<std::unique_ptr<Calibration>> open(const std::filesystem::path& model_dir,
                                                     const CalibrationText& text,
                                                     const kernels::OpenedDevice& device,
                                                     const std::filesystem::path& cache_dir = {});

  using Wanted = std::map<std::string, quant::InputStatistics*>;
  // See convert::CollectInputs: computes each sequence, as far as the last of the products wanted;
  // for statistics that keep drift twice, the second time with rounded matrices.
  Status collect(const Wanted& wanted);
  // Of the inputs of all products, and of the results of those that are no experts'.
  StatusOr<convert::Magnitudes> magnitudes();
  // See convert::UseRounded. Keeps the matrix, bf16.
  Status use_rounded(const std::string& weight, std::span<const BF16> matrix, int64_t k);

  int64_t num_tokens() const;
  // What its products' inputs depend on beside the model: tokens, and this machine's kernels.
  std::string key() const;

 private:
  Calibration(Device& device, const kernels::Registry& registry)
      : device_(device), registry_(registry) {}
  using See = std::function<Status(quant::InputStatistics& statistics, const View& x)>;
  Status watch(std::span<const int32_t> tokens, const Wanted& wanted, bool rounded, const See& see);
  Status put_in_place(const std::string& name, kernels::Linear& call) const;
  Status run(std::span<const int32_t> tokens);
  // What a product makes, in its place; the step makes the same again.
  Status multiply(const kernels::Linear& call);

  Device& device_;
  const kernels::Registry& registry_;
  std::vector<std::vector<int32_t>> sequences_;
  std::map<std::string, Buffer> rounded_;  // matrices in kPanel16, by weight
  std::unique_ptr<quant::ColumnProducts> products_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<exec::Runner> runner_;  // last: its steps use the products
};

}  // namespace nereid::cli
