#include "cli/tools/calibrate.h"

#include <algorithm>
#include <numeric>

#include "base/file.h"
#include "convert/engine_cache.h"
#include "convert/engine_dir.h"
#include "exec/memory.h"
#include "exec/step_message.h"
#include "text/tokenizer.h"

namespace nereid::cli {
namespace {

constexpr int32_t kBlockTokens = 64;
// Products stay those of the checkpoint's matrices, and all rows go through all of them.
const std::vector<std::string> kDisabledPasses = {"merge_qkv", "merge_gate_up",
                                                  "gather_before_head"};

StatusOr<std::vector<std::vector<int32_t>>> read_sequences(const std::filesystem::path& model_dir,
                                                           const CalibrationText& text,
                                                           int32_t most_tokens) {
  ASSIGN_OR_RETURN(const auto dir, convert::tokenizer_dir(model_dir));
  ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::load(dir));
  ASSIGN_OR_RETURN(const std::string words, read_file(text.file, text::Tokenizer::kMaxTextBytes));
  ASSIGN_OR_RETURN(const auto ids, tokenizer->encode(words));
  const auto size = static_cast<size_t>(std::min(text.sequence_tokens, most_tokens));
  const size_t count = std::max<size_t>(ids.size() / size, ids.empty() ? 0 : 1);
  if (count == 0) return invalid_argument("{}: has no tokens", text.file.string());
  const size_t taken = std::min(count, static_cast<size_t>(text.num_sequences));
  std::vector<std::vector<int32_t>> sequences;
  for (size_t i = 0; i < taken; ++i) {
    const auto part = std::span(ids).subspan(i * count / taken * size);
    const auto tokens = part.first(std::min(part.size(), size));
    sequences.emplace_back(tokens.begin(), tokens.end());
  }
  return sequences;
}

}  // namespace

StatusOr<std::unique_ptr<Calibration>> Calibration::open(const std::filesystem::path& model_dir,
                                                         const CalibrationText& text,
                                                         const kernels::OpenedDevice& device) {
  convert::BuildOptions build;
  build.compile.disabled_passes = kDisabledPasses;
  build.compile.weights = kernels::WeightFormat{};
  ASSIGN_OR_RETURN(const auto engine, convert::ensure_engine(model_dir, device.registry,
                                                             device.device->info(), build));
  ASSIGN_OR_RETURN(io::EngineFile file, io::EngineFile::open(engine, io::Verify::kHeader));
  std::unique_ptr<Calibration> out(new Calibration());
  ASSIGN_OR_RETURN(out->sequences_,
                   read_sequences(model_dir, text, file.plan().model.max_positions));
  ASSIGN_OR_RETURN(out->products_, quant::ColumnProducts::create(device.registry, *device.device));
  exec::RunnerLimits limits;
  limits.max_rows = 1;
  limits.block_tokens = kBlockTokens;
  for (const auto& tokens : out->sequences_)
    limits.max_tokens = std::max(limits.max_tokens, static_cast<int32_t>(tokens.size()));
  limits.max_sequence_length = limits.max_tokens;
  for (int32_t& blocks : limits.num_blocks.of)
    blocks = static_cast<int32_t>(exec::num_blocks_for(limits.max_tokens, kBlockTokens));
  ASSIGN_OR_RETURN(out->runner_,
                   exec::make_runner(std::move(file), *device.device, device.registry, limits));
  return out;
}

Status Calibration::run(std::span<const int32_t> tokens) {
  std::vector<int32_t> blocks(
      static_cast<size_t>(exec::num_blocks_for(static_cast<int64_t>(tokens.size()), kBlockTokens)));
  std::iota(blocks.begin(), blocks.end(), 0);
  exec::PerGroup<std::span<const int32_t>> tables;
  for (auto& table : tables.of) table = blocks;
  exec::Step step;
  step.add({}, tokens, tables, runner_->groups().size(), kBlockTokens);
  std::vector<std::byte> message;
  exec::encode(step, message);
  ASSIGN_OR_RETURN(exec::Ticket ticket, runner_->launch(message));
  return runner_->wait(ticket).status();
}

Status Calibration::collect(const std::map<std::string, quant::InputStatistics*>& wanted) {
  Status status;
  size_t missing = 0;
  runner_->set_observer([&](const std::string& weight, const View& x) {
    const auto it = wanted.find(weight);
    if (it == wanted.end()) return true;
    status = it->second->add(x, *products_);
    return status.ok() && --missing > 0;
  });
  for (const std::vector<int32_t>& tokens : sequences_) {
    missing = wanted.size();
    if (Status ran = run(tokens); status.ok()) status = ran;
    if (!status.ok()) break;
  }
  runner_->set_observer({});
  return status;
}

int64_t Calibration::num_tokens() const {
  int64_t count = 0;
  for (const auto& tokens : sequences_) count += static_cast<int64_t>(tokens.size());
  return count;
}

}  // namespace nereid::cli
