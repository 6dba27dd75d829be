#include "runtime/prompts/picture_encoder.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "convert/engine_dir.h"
#include "exec/step_message.h"
#include "io/engine_writer.h"
#include "kernels/api/op.h"
#include "runtime/model_instance.h"
#include "runtime/ranks.h"

namespace nereid::runtime {
namespace {

constexpr int32_t kBlockRows = 64;     // of the features' memory
constexpr int32_t kStepTokens = 4096;  // of a step with several pictures
constexpr int32_t kStepPictures = 64;

// The encoder's engine of a model, for the device.
StatusOr<io::EngineFile> open_engine(const std::filesystem::path& model_dir,
                                     const ExecutorConfig& config,
                                     const kernels::OpenedDevice& device) {
  ASSIGN_OR_RETURN(convert::BuildOptions build, build_options(model_dir, config, device));
  build.compile.half = models::Half::kEncoder;
  build.compile.head = {};
  build.compile.adapters = false;
  ASSIGN_OR_RETURN(const auto path,
                   convert::ensure_engine(convert::encoder_path(model_dir), device.registry,
                                          device.device->info(), build));
  const io::MemoryEngineCloser closer(path);
  return io::EngineFile::open(path, io::Verify::kHeader);
}

}  // namespace

StatusOr<std::unique_ptr<PictureEncoder>> PictureEncoder::create(
    const std::filesystem::path& model_dir, const ExecutorConfig& config) {
  ExecutorConfig own = config;
  own.tensor_parallel = own.pipeline_parallel = 1;
  own.rank_processes = own.enable_lora = false;
  own.process_mode = "leader";
  own.draft_model.clear();
  ASSIGN_OR_RETURN(const io::ModelFacts model, convert::read_facts(model_dir));
  const io::PictureFacts& facts = model.pictures;
  if (facts.patch_width == 0)
    return unsupported("{}: {} has no vision encoder", model_dir.string(), model.architecture);
  if (facts.grid == 0 || facts.row_breaks || facts.tiles_in_plane || facts.in_cross ||
      facts.window > 0)
    return unsupported(
        "{}: pictures of {} have several sizes; allowed are models whose pictures have one, as "
        "LLaVA's",
        model_dir.string(), model.architecture);
  ASSIGN_OR_RETURN(std::vector<kernels::OpenedDevice> devices, open_devices(own, 1));
  std::unique_ptr<PictureEncoder> encoder(new PictureEncoder(std::move(devices.front())));
  ASSIGN_OR_RETURN(io::EngineFile file, open_engine(model_dir, own, encoder->device_));
  encoder->rules_.facts = facts;
  encoder->rules_.facts.in_raster = true;
  RETURN_IF_ERROR(encoder->load(std::move(file)));
  return encoder;
}

Status PictureEncoder::load(io::EngineFile file) {
  const io::PictureFacts& facts = rules_.facts;
  Device& device = *device_.device;
  patch_ = static_cast<int32_t>(std::lround(std::sqrt(facts.patch_width / 3)));
  if (3 * patch_ * patch_ != facts.patch_width)
    return unsupported("{}: patches of {} numbers; allowed are squares of 3 channels",
                       file.path().string(), facts.patch_width);
  side_ = facts.grid * patch_;
  const int32_t blocks = facts.grid / facts.merge;
  num_rows_ = blocks * blocks;
  const int32_t tokens = facts.grid * facts.grid + facts.class_tokens;
  rules_.max_patches = facts.grid * facts.grid;
  step_pictures_ =
      std::clamp(kStepTokens / tokens, 1, std::min(kStepPictures, exec::max_picture_parts(facts)));
  picture_blocks_ = static_cast<int32_t>(exec::num_blocks_for(num_rows_, kBlockRows));
  exec::RunnerLimits limits;
  limits.max_rows = step_pictures_;
  limits.max_tokens = tokens * step_pictures_;
  limits.max_sequence_length = tokens;
  limits.block_tokens = kBlockRows;
  limits.depth = 1;
  limits.max_encoder_length = tokens;
  limits.max_encoder_tokens = tokens * step_pictures_;
  limits.num_feature_blocks = picture_blocks_ * step_pictures_;
  const int32_t width = file.plan().model.hidden_size;
  const size_t bytes = static_cast<size_t>(limits.num_feature_blocks) * size_t{kBlockRows} *
                       static_cast<size_t>(width) * sizeof(BF16);
  ASSIGN_OR_RETURN(features_, device.allocate(bytes));
  ASSIGN_OR_RETURN(host_features_, device.allocate_host(bytes));
  ASSIGN_OR_RETURN(
      pass_, exec::EncoderPass::create(std::move(file), limits, device, device_.registry,
                                       {nullptr, features_.bytes(), width}, exchange_, adapters_,
                                       io::Mapping()));
  ASSIGN_OR_RETURN(stream_, device.create_stream());
  if (device_.registry.tuner.use)
    device_.registry.tuner.use(pass_->file().plan().choices, *stream_);
  return ok();
}

// Patches of pixel values [3, side, side], row by row; numbers of a patch by channel, row, column.
Picture PictureEncoder::picture_of(std::span<const uint16_t> pixels) const {
  Picture out;
  out.frames = 1;
  out.height = out.width = rules_.facts.grid;
  out.num_tokens = num_rows_;
  out.patches.reserve(pixels.size());
  const auto side = static_cast<size_t>(side_), patch = static_cast<size_t>(patch_);
  for (size_t top = 0; top < side; top += patch)
    for (size_t left = 0; left < side; left += patch)
      for (size_t c = 0; c < 3; ++c)
        for (size_t y = top; y < top + patch; ++y) {
          const auto row = pixels.subspan((c * side + y) * side + left, patch);
          out.patches.insert(out.patches.end(), row.begin(), row.end());
        }
  return out;
}

Status PictureEncoder::encode_step(std::span<const uint16_t> pixels, std::vector<uint16_t>& rows) {
  std::vector<Picture> pictures;
  for (size_t at = 0; at < pixels.size(); at += numbers_of_picture())
    pictures.push_back(picture_of(pixels.subspan(at, numbers_of_picture())));
  const auto inputs = picture_inputs(std::move(pictures), rules_, /*cache_salt=*/"");
  exec::StepMessage step;
  for (const EncoderRows& input : inputs) {
    step.encoder_inputs.push_back({input.length, input.num_parts});
    step.encoder_tokens.insert(step.encoder_tokens.end(), static_cast<size_t>(input.length),
                               exec::kTokenExternal);
    const auto* const numbers = reinterpret_cast<const BF16*>(input.rows.data());
    step.encoder_embeddings.insert(step.encoder_embeddings.end(), numbers,
                                   numbers + input.rows.size());
    step.encoder_components.insert(step.encoder_components.end(), input.components.begin(),
                                   input.components.end());
    for (int32_t i = 0; i < picture_blocks_; ++i)
      step.encoder_blocks.push_back(static_cast<int32_t>(step.encoder_blocks.size()));
  }
  exec::StepMessageView view;
  view.encoder_inputs = step.encoder_inputs;
  view.encoder_tokens = step.encoder_tokens;
  view.encoder_embeddings = step.encoder_embeddings;
  view.encoder_components = step.encoder_components;
  view.encoder_blocks = step.encoder_blocks;
  RETURN_IF_ERROR(device_.device->health().failure());  // a hung device may still read them
  RETURN_IF_ERROR(pass_->stage(view, 0));
  const size_t row_bytes = static_cast<size_t>(width()) * sizeof(BF16);
  const size_t stride = static_cast<size_t>(picture_blocks_) * kBlockRows * row_bytes;
  const size_t bytes = static_cast<size_t>(num_rows_) * row_bytes;
  ASSIGN_OR_RETURN(const auto event, stream_->submit([&](Stream& stream) -> Status {
    RETURN_IF_ERROR(pass_->run(0, stream));
    return stream.copy_rows(host_features_.data(), bytes, features_.data(), stride, bytes,
                            inputs.size());
  }));
  RETURN_IF_ERROR(event->wait());
  const auto* const results = reinterpret_cast<const uint16_t*>(host_features_.data());
  rows.insert(rows.end(), results, results + inputs.size() * bytes / sizeof(uint16_t));
  return ok();
}

StatusOr<std::vector<uint16_t>> PictureEncoder::encode(std::span<const uint16_t> pixels) {
  const size_t numbers = numbers_of_picture();
  if (pixels.empty() || pixels.size() % numbers != 0)
    return invalid_argument("{} pixel values; expected a multiple of {} (3 x {} x {})",
                            pixels.size(), numbers, side_, side_);
  constexpr uint16_t kExponent = 0x7f80;
  const auto bad =
      std::ranges::find_if(pixels, [](uint16_t bits) { return (bits & kExponent) == kExponent; });
  if (bad != pixels.end())
    return invalid_argument("pixel value {} is not finite as bf16", bad - pixels.begin());
  std::vector<uint16_t> rows;
  rows.reserve(pixels.size() / numbers * static_cast<size_t>(num_rows_) *
               static_cast<size_t>(width()));
  while (!pixels.empty()) {
    const size_t count = std::min(pixels.size(), numbers * static_cast<size_t>(step_pictures_));
    RETURN_IF_ERROR(encode_step(pixels.first(count), rows));
    pixels = pixels.subspan(count);
  }
  return rows;
}

}  // namespace nereid::runtime
