// The vision encoder of a model of pictures, without the decoder: from pixels to a prompt table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "exec/adapter_pool.h"
#include "exec/encoder_pass.h"
#include "exec/exchange.h"
#include "kernels/open.h"
#include "nereid/config.h"
#include "runtime/prompts/pictures.h"
#include "tensor/device.h"
#include "tensor/health.h"

namespace nereid::runtime {

// Thread compatible: one call of encode() at a time.
class PictureEncoder {
 public:
  // Builds or finds the encoder's engine, for one device; options of ranks and of the decoder do
  // not count. Unimplemented: the model has no encoder, or its pictures have several sizes.
  static StatusOr<std::unique_ptr<PictureEncoder>> create(const std::filesystem::path& model_dir,
                                                          const ExecutorConfig& config);
  PictureEncoder(const PictureEncoder&) = delete;
  PictureEncoder& operator=(const PictureEncoder&) = delete;

  int32_t side() const { return side_; }                 // of a picture, in pixels
  int32_t rows_of_picture() const { return num_rows_; }  // of the result
  int32_t width() const { return facts().hidden_size; }  // of a row, that of embeddings
  size_t numbers_of_picture() const { return 3 * static_cast<size_t>(side_ * side_); }

  // Rows [num_pictures, rows_of_picture(), width()] of `pixels` [num_pictures, 3, side(), side()],
  // normalised as the model's processor does; bits of bf16 numbers. A picture's rows are those that
  // the engine computes for it. InvalidArgument: `pixels` are no pictures, or not finite.
  StatusOr<std::vector<uint16_t>> encode(std::span<const uint16_t> pixels);

  // On a hung device the encoder is leaked: running work may still use its memory.
  static void operator delete(PictureEncoder* encoder, std::destroying_delete_t) {
    if (encoder->device_.device->health().is_hung())
      return keep_for_ever(std::shared_ptr<void>(encoder, [](void*) {}));
    encoder->~PictureEncoder();
    ::operator delete(encoder);
  }

 private:
  explicit PictureEncoder(kernels::OpenedDevice device) : device_(std::move(device)) {}
  Status load(io::EngineFile file);
  const io::ModelFacts& facts() const { return pass_->file().plan().model; }
  // Appends the rows of at most `step_pictures_` pictures.
  Status encode_step(std::span<const uint16_t> pixels, std::vector<uint16_t>& rows);
  Picture picture_of(std::span<const uint16_t> pixels) const;

  // Members are destroyed in reverse order.
  kernels::OpenedDevice device_;
  PictureRules rules_;
  int32_t side_ = 0, patch_ = 0, num_rows_ = 0;
  int32_t step_pictures_ = 0;   // of a step, at most
  int32_t picture_blocks_ = 0;  // of a picture's features
  exec::Exchange exchange_{exec::RankComms()};
  exec::AdapterPool adapters_;
  Buffer features_, host_features_;
  std::unique_ptr<exec::EncoderPass> pass_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace nereid::runtime
