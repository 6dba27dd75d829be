// Calibration: statistics of the inputs of a model's products while it computes a text.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "convert/quantize/quantize_checkpoint.h"
#include "convert/rank_format.h"
#include "exec/runner.h"
#include "kernels/open.h"

namespace nereid::cli {

struct CalibrationText {
  std::filesystem::path file;     // UTF-8
  int64_t num_sequences = 512;    // upper bound; spread evenly over the text
  int32_t sequence_tokens = 512;  // of each sequence; at most the model's maximum
};

// A text, and the model on this machine's CPU with bf16 weights. The engine is built on first use
// and cached; its products are those of the family's graph, without merging passes.
class Calibration {
 public:
  // The device must outlive it. `cache_dir`: folder of the engine; empty: the default one.
  // InvalidArgument: the text has no tokens; errors of the model.
  static StatusOr<std::unique_ptr<Calibration>> open(const std::filesystem::path& model_dir,
                                                     const CalibrationText& text,
                                                     const kernels::OpenedDevice& device,
                                                     const std::filesystem::path& cache_dir = {});

  using Wanted = std::map<std::string, quant::InputStatistics*>;
  // convert::CollectInputs: computes each sequence up to the last wanted product; statistics that
  // keep drift take two runs, the second with rounded matrices.
  Status collect(const Wanted& wanted);
  // Largest magnitudes of the inputs of all products, and of the results of all but experts'.
  StatusOr<convert::Magnitudes> magnitudes();
  // convert::UseRounded. Keeps the bf16 matrix.
  Status use_rounded(const std::string& weight, std::span<const BF16> matrix, int64_t k);

  int64_t num_tokens() const;
  // A key of everything beside the model that determines the products' inputs: tokens, and
  // this machine's kernels.
  std::string key() const;

 private:
  Calibration(Device& device, const kernels::Registry& registry)
      : device_(device), registry_(registry) {}
  using See = std::function<Status(quant::InputStatistics& statistics, const View& x)>;
  Status watch(std::span<const int32_t> tokens, const Wanted& wanted, bool rounded, const See& see);
  Status put_in_place(const std::string& name, kernels::Linear& call) const;
  Status run(std::span<const int32_t> tokens);
  // Computes a product ahead of the step, which then computes it again.
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
