#include "cli/tools/calibrate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/file.h"
#include "base/hash.h"
#include "convert/engine_cache.h"
#include "convert/engine_dir.h"
#include "exec/memory.h"
#include "exec/step_message.h"
#include "kernels/api/pack.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::cli {
namespace {

constexpr int32_t kBlockTokens = 64;
// Disabled so that products correspond to the checkpoint's matrices and all rows pass all of them.
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
                                                         const kernels::OpenedDevice& device,
                                                         const std::filesystem::path& cache_dir) {
  convert::BuildOptions build;
  build.cache_dir = cache_dir;
  build.compile.disabled_passes = kDisabledPasses;
  build.compile.weights = kernels::WeightFormat{};
  ASSIGN_OR_RETURN(const auto engine, convert::ensure_engine(model_dir, device.registry,
                                                             device.device->info(), build));
  ASSIGN_OR_RETURN(io::EngineFile file, convert::take_engine(engine));
  std::unique_ptr<Calibration> out(new Calibration(*device.device, device.registry));
  ASSIGN_OR_RETURN(out->sequences_,
                   read_sequences(model_dir, text, file.plan().model.max_positions));
  ASSIGN_OR_RETURN(out->products_, quant::ColumnProducts::create(device.registry, *device.device));
  ASSIGN_OR_RETURN(out->stream_, device.device->create_stream());
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
  exec::StepMessage step;
  step.add({}, tokens, tables, runner_->groups().size(), kBlockTokens);
  std::vector<std::byte> message;
  exec::encode(step, message);
  ASSIGN_OR_RETURN(exec::Ticket ticket, runner_->launch(message));
  return runner_->wait(ticket).status();
}

Status Calibration::use_rounded(const std::string& weight, std::span<const BF16> matrix,
                                int64_t k) {
  const int64_t n = static_cast<int64_t>(matrix.size()) / k;
  Buffer& packed = rounded_[weight];
  ASSIGN_OR_RETURN(packed, device_.allocate(kernels::panel16_bytes(n, k)));
  const kernels::RowMajorPart part{matrix.data(), n};
  return kernels::pack_panel16({&part, 1}, k, {packed.bytes(), packed.size()});
}

Status Calibration::put_in_place(const std::string& name, kernels::Linear& call) const {
  const auto it = rounded_.find(name);
  if (it == rounded_.end()) return ok();
  if (!call.weight.format.is_float() || call.weight.layout != kernels::WeightLayout::kPanel16)
    return unsupported("sequential calibration: this machine's kernels read '{}' in another layout",
                       name);
  call.weight.data = it->second.data();
  return ok();
}

Status Calibration::watch(std::span<const int32_t> tokens, const Wanted& wanted, bool rounded,
                          const See& see) {
  Status status;
  size_t missing = wanted.size();
  runner_->set_observer([&](const std::string& weight, kernels::Linear& call) {
    if (const auto it = wanted.find(weight); it != wanted.end()) {
      if (call.x.rows > 0) status = see(*it->second, call.x);
      if (!status.ok() || --missing == 0) return false;
    }
    if (rounded) status = put_in_place(weight, call);
    return status.ok();
  });
  const Status ran = run(tokens);
  runner_->set_observer({});
  return status.ok() ? ran : status;
}

Status Calibration::collect(const Wanted& wanted) {
  for (const std::vector<int32_t>& tokens : sequences_) {
    std::map<const quant::InputStatistics*, std::vector<BF16>> floats;  // rows of the float model
    RETURN_IF_ERROR(watch(tokens, wanted, false, [&](auto& statistics, const View& x) -> Status {
      if (!statistics.keeps_drift()) return statistics.add(x, *products_);
      std::vector<BF16>& kept = floats[&statistics];
      for (int64_t row = 0; row < x.rows; ++row) {
        const auto* const from = static_cast<const BF16*>(x.data) + row * x.stride;
        kept.insert(kept.end(), from, from + x.cols);
      }
      return ok();
    }));
    if (floats.empty()) continue;
    RETURN_IF_ERROR(watch(tokens, wanted, true, [&](auto& statistics, const View& x) -> Status {
      if (!statistics.keeps_drift()) return ok();
      std::vector<BF16>& kept = floats.at(&statistics);
      return statistics.add_drift(View::matrix(kept.data(), DType::kBF16, x.rows, x.cols), x,
                                  *products_);
    }));
  }
  return ok();
}

Status Calibration::multiply(const kernels::Linear& call) {
  ASSIGN_OR_RETURN(const kernels::Kernel<kernels::Linear>* const kernel,
                   kernels::select(registry_.table<kernels::Linear>(), call, device_.info()));
  ASSIGN_OR_RETURN(const auto event,
                   stream_->submit([&](Stream& stream) { return kernel->run(call, stream); }));
  return event->wait();
}

StatusOr<convert::Magnitudes> Calibration::magnitudes() {
  convert::Magnitudes out;
  const auto see = [](std::map<std::string, float>& of, const std::string& weight, const View& x) {
    float& most = of[weight];
    for (int64_t row = 0; row < x.rows; ++row)
      for (int64_t col = 0; col < x.cols; ++col)
        most = std::max(most, std::fabs(x.dtype == DType::kBF16 ? to_float(x.row<BF16>(row)[col])
                                                                : x.row<float>(row)[col]));
  };
  for (const std::vector<int32_t>& tokens : sequences_) {
    Status made;
    runner_->set_observer([&](const std::string& weight, kernels::Linear& call) {
      see(out.inputs, weight, call.x);
      if (call.out.data) {
        made = multiply(call);
        if (made.ok()) see(out.outputs, weight, call.out);
      }
      return made.ok();
    });
    const Status ran = run(tokens);
    runner_->set_observer({});
    RETURN_IF_ERROR(made);
    RETURN_IF_ERROR(ran);
  }
  return out;
}

std::string Calibration::key() const {
  uint64_t state = 0;
  for (const std::vector<int32_t>& tokens : sequences_)
    state = hash64(tokens.data(), tokens.size() * sizeof(int32_t), state + tokens.size());
  return fmt::format("{} {}", hex64(state), name_of(device_.info().isa));
}

int64_t Calibration::num_tokens() const {
  int64_t count = 0;
  for (const auto& tokens : sequences_) count += static_cast<int64_t>(tokens.size());
  return count;
}

}  // namespace nereid::cli
