#include "backend/multimodal/pixel_input.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/common/float_tensors.h"
#include "tensor/dtype.h"

namespace nereid::backend {
namespace {

constexpr int64_t kMostPictures = 64;  // of a request

// Inputs of mllama, llava_onevision and qwen2_vl, whose pictures have several tensors.
constexpr const char* kOtherModels[] = {
    "aspect_ratio_ids", "aspect_ratio_mask", "cross_attention_mask", "image_sizes",
    "attention_mask",   "image_grid_thw",    "vision_input_id"};

Status refuse_other_models(const Request& request) {
  for (const char* name : kOtherModels) {
    ASSIGN_OR_RETURN(const auto view, request.input(name));
    if (view && !view->bytes.empty())
      return unsupported(
          "input '{}' is not supported: the model takes pictures of one size as 'pixel_values' or "
          "'IMAGE' alone",
          name);
  }
  ASSIGN_OR_RETURN(const auto is_video, request.scalar<bool>("is_video_input"));
  if (is_video.value_or(false))
    return unsupported("input 'is_video_input' is true; allowed is false: send pictures");
  return ok();
}

}  // namespace

StatusOr<PixelValues> read_pixel_values(const Request& request, int32_t side) {
  RETURN_IF_ERROR(refuse_other_models(request));
  const char* name = "pixel_values";
  ASSIGN_OR_RETURN(auto view, request.input(name));
  if (!view || view->bytes.empty()) {
    ASSIGN_OR_RETURN(view, request.input(name = "IMAGE"));
  }
  if (!view || view->bytes.empty())
    return invalid_argument(
        "input 'pixel_values' or 'IMAGE' is required: there is no picture to encode (the prompt "
        "has a place for it)");
  const Shape& shape = view->shape;
  const bool fits = shape.size() == 5 && shape[0] >= 1 && shape[1] >= 1 && shape[2] == 3 &&
                    shape[3] == side && shape[4] == side;
  if (!fits)
    return invalid_argument("input '{}' has the shape [{}], expected [batch, pictures, 3, {}, {}]",
                            name, fmt::join(shape, ", "), side, side);
  if (shape[0] > kMostPictures || shape[1] > kMostPictures || shape[0] * shape[1] > kMostPictures)
    return invalid_argument("input '{}' has {} x {} pictures; allowed are {}", name, shape[0],
                            shape[1], kMostPictures);
  RETURN_IF_ERROR(request.hold(view->bytes.size()));
  PixelValues out{shape[0], shape[1], {}};
  ASSIGN_OR_RETURN(out.values, read_bf16(name, *view));
  for (size_t i = 0; i < out.values.size(); ++i)
    if (!std::isfinite(to_float(BF16{out.values[i]})))
      return invalid_argument("input '{}': number {} is not finite as bf16", name, i);
  return out;
}

StatusOr<std::vector<Output>> table_outputs(std::span<const uint16_t> rows, int64_t batch,
                                            int64_t width, TRITONSERVER_DataType type) {
  constexpr char kName[] = "OUT_PROMPT_EMBEDDING_TABLE";
  constexpr float kLargestHalf = 65504;
  const int64_t count = std::ssize(rows) / batch / width;
  std::vector<float> values;
  values.reserve(rows.size());
  for (const uint16_t bits : rows) values.push_back(to_float(BF16{bits}));
  const auto wrong =
      std::ranges::find_if(values, [](float x) { return std::abs(x) > kLargestHalf; });
  if (type == TRITONSERVER_TYPE_FP16 && wrong != values.end())
    return unsupported(
        "output '{}' has a {}, which FP16 does not hold; declare it, and the input "
        "'prompt_embedding_table' of tensorrt_llm, as TYPE_BF16 or TYPE_FP32",
        kName, *wrong);
  Output table{kName, type, {batch, count, width}, {}};
  ASSIGN_OR_RETURN(table.bytes, float_bytes(kName, values, type));
  std::vector<Output> out;
  out.push_back(std::move(table));
  out.push_back(
      make_output("OUT_PROMPT_VOCAB_SIZE", {batch, 1},
                  std::vector<int32_t>(static_cast<size_t>(batch), static_cast<int32_t>(count))));
  return out;
}

}  // namespace nereid::backend
