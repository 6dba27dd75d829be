// See classify.h.
#include "front/bridge/classify.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace nereid::front {
namespace {

// One number of a tensor, for sorting and for printing.
struct Score {
  double value;
  std::string text;
};

template <class T>
Score score_at(const char* data, size_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  if constexpr (std::is_floating_point_v<T>) {
    return {static_cast<double>(value), fmt::format("{:f}", value)};
  } else {
    return {static_cast<double>(value), std::to_string(value)};
  }
}

StatusOr<Score> read_score(const Tensor& t, size_t i) {
  const char* data = t.bytes.data();
  switch (t.type) {
    case TRITONSERVER_TYPE_UINT8:
      return score_at<uint8_t>(data, i);
    case TRITONSERVER_TYPE_UINT16:
      return score_at<uint16_t>(data, i);
    case TRITONSERVER_TYPE_UINT32:
      return score_at<uint32_t>(data, i);
    case TRITONSERVER_TYPE_UINT64:
      return score_at<uint64_t>(data, i);
    case TRITONSERVER_TYPE_INT8:
      return score_at<int8_t>(data, i);
    case TRITONSERVER_TYPE_INT16:
      return score_at<int16_t>(data, i);
    case TRITONSERVER_TYPE_INT32:
      return score_at<int32_t>(data, i);
    case TRITONSERVER_TYPE_INT64:
      return score_at<int64_t>(data, i);
    case TRITONSERVER_TYPE_FP32:
      return score_at<float>(data, i);
    case TRITONSERVER_TYPE_FP64:
      return score_at<double>(data, i);
    default:
      return invalid_argument(
          "class result not available for output '{}' due to unsupported type "
          "'{}'",
          t.name, TRITONSERVER_DataTypeString(t.type));
  }
}

}  // namespace

StatusOr<Tensor> classify(const Tensor& t, uint64_t num, bool batched) {
  const size_t element = TRITONSERVER_DataTypeByteSize(t.type);
  const size_t total = element == 0 ? 0 : t.bytes.size() / element;
  const size_t rows = batched && !t.shape.empty() ? static_cast<size_t>(t.shape[0]) : 1;
  const size_t classes = rows == 0 ? 0 : total / rows;
  const size_t kept = std::min<uint64_t>(num, classes);
  Tensor out{t.name, TRITONSERVER_TYPE_BYTES, {}, {}};
  if (batched) out.shape.push_back(static_cast<int64_t>(rows));
  out.shape.push_back(static_cast<int64_t>(kept));
  if (element == 0) RETURN_IF_ERROR(read_score(t, 0).status());
  for (size_t row = 0; row < rows; ++row) {
    std::vector<Score> scores;
    for (size_t i = 0; i < classes; ++i) {
      ASSIGN_OR_RETURN(Score score, read_score(t, row * classes + i));
      scores.push_back(std::move(score));
    }
    std::vector<size_t> order(classes);
    std::iota(order.begin(), order.end(), size_t{0});
    // NaN sorts last.
    const auto key = [&](size_t i) {
      return scores[i].value == scores[i].value ? scores[i].value : -1e308;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return key(a) > key(b); });
    for (size_t i = 0; i < kept; ++i) {
      std::string text = fmt::format("{}:{}", scores[order[i]].text, order[i]);
      if (order[i] < t.labels.size() && !t.labels[order[i]].empty()) {
        text += ":" + t.labels[order[i]];
      }
      append_string_element(out.bytes, text);
    }
  }
  return out;
}

}  // namespace nereid::front
