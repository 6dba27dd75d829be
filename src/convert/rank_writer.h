// Writer of a rank's tensors in a TensorRT-LLM checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "convert/rank_format.h"
#include "io/checkpoint.h"
#include "io/safetensors_writer.h"
#include "models/formats/trtllm.h"

namespace nereid::convert {

struct Progress {
  uint64_t bytes = 0, total_bytes = 0;  // written, all ranks together
  int32_t rank = 0;                     // current rank
};

// Writes tensors a million elements at a time. All arguments must outlive the writer.
class RankWriter {
 public:
  // `to`: type of floats. `report` is called often.
  RankWriter(const graph::Graph& graph, const io::Checkpoint& checkpoint, DType to,
             const RankFormat& format, Progress& progress,
             const std::function<void(const Progress&)>& report)
      : graph_(graph),
        checkpoint_(checkpoint),
        to_(to),
        format_(format),
        progress_(progress),
        report_(report) {}

  // Writes the tensors of rank progress.rank. InvalidArgument with file and tensor: an element is
  // not finite, or out of the type's range.
  Status write(const std::vector<models::RankTensor>& tensors, const std::filesystem::path& path);

 private:
  Status write(const models::RankTensor& tensor, io::SafetensorsWriter& writer);
  DType type_of(const models::RankTensor& tensor) const {
    return tensor.is_f32 ? DType::kF32 : to_;
  }
  Status write_floats(const models::RankTensor& tensor, io::SafetensorsWriter& writer);
  // Writes codes of some rows at a time, of an even number if possible; keeps the scales.
  Status write_rounded(const models::RankTensor& tensor, io::SafetensorsWriter& writer);
  // Reads rows [row, row + rows) of the block into values_.
  Status read_block(const models::RankBlock& block, int64_t row, int64_t rows);
  void forget(const graph::Weight& weight);
  Status write_block(const models::RankBlock& block, DType type, io::SafetensorsWriter& writer);
  // Reads the whole block: it is one head's matrix.
  Status write_transposed(const models::RankBlock& block, DType type,
                          io::SafetensorsWriter& writer);
  Status write_zeros(uint64_t bytes, io::SafetensorsWriter& writer);
  Status append(std::span<const std::byte> bytes, io::SafetensorsWriter& writer);
  // Converts values_ to bytes_; returns the index of the first element out of range, or the size.
  size_t convert(DType type);
  // Error with the source tensor of the weight's row.
  Status refuse(const graph::Weight& weight, int64_t row, int64_t col, float value,
                DType type) const;

  const graph::Graph& graph_;
  const io::Checkpoint& checkpoint_;
  const DType to_;
  const RankFormat& format_;
  Progress& progress_;
  const std::function<void(const Progress&)>& report_;
  std::vector<float> values_, scales_;
  std::vector<std::byte> bytes_;
};

}  // namespace nereid::convert
