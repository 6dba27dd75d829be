#include "convert/quantize/layer_rounding.h"

#include <algorithm>
#include <cmath>

#include "convert/weight_source.h"
#include "kernels/api/pack.h"
#include "models/expert_tensors.h"
#include "quant/error_feedback.h"
#include "quant/scale_search.h"

namespace nereid::convert {

namespace {

// Experts with fewer rows are not calibrated.
constexpr int64_t kFewestRows = 16;

// Added damping of error feedback = kDampingOfFewRows * columns / rows: with few rows, correlations
// between columns are noise and compensation increases errors. (Quick-start model, groups of 128,
// divergence; plain rounding 0.174. Rows = 2 * columns: 0.217 without, 0.125 with 0.3; rows = 8 *
// columns: 0.104 without, 0.095 with 0.1.)
constexpr double kDampingOfFewRows = 0.5;

bool saw_enough(const ProductInput& input, const quant::InputStatistics& statistics) {
  return input.expert < 0 || statistics.num_rows() >= kFewestRows;
}

}  // namespace

StatusOr<std::vector<float>> factors_of_norm(const FactorPlace& place, const graph::Graph& graph,
                                             const io::Checkpoint& checkpoint,
                                             const ChangedVectors& changed) {
  const graph::Weight& norm = graph.weights[place.norm];
  std::vector<float> factors(static_cast<size_t>(norm.k), 1);
  const auto it = changed.find(norm.parts[0].tensor);
  if (it == changed.end()) return factors;
  std::vector<float> before(factors.size());
  RETURN_IF_ERROR(read_values(norm, checkpoint, 0, before));
  for (size_t i = 0; i < factors.size(); ++i) {
    const float old = before[i] + place.norm_offset, divided = it->second[i] + place.norm_offset;
    if (old != 0 && divided != 0) factors[i] = old / divided;
  }
  return factors;
}

Status LayerRounding::read_matrix(graph::WeightId id, int64_t expert,
                                  std::vector<float>& matrix) const {
  const graph::Weight& weight = graph_.weights[id];
  matrix.resize(static_cast<size_t>(weight.n * weight.k));
  return read_values(weight, checkpoint_, std::max<int64_t>(expert, 0) * weight.n * weight.k,
                     matrix);
}

Status LayerRounding::run(std::span<const ProductInput> inputs,
                          std::span<const quant::InputStatistics> statistics) {
  for (const ProductInput& input : inputs)
    for (const graph::WeightId id : input.weights)
      RETURN_IF_ERROR(read_matrix(id, input.expert, matrices_[id]));
  // All factors first: the factors of one input may change rows of another product.
  std::vector<std::vector<float>> factors(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    factors[i].assign(static_cast<size_t>(inputs[i].k), 1);
    if (options_.takes_factors() && inputs[i].place.is_there())
      RETURN_IF_ERROR(find_factors(inputs[i], statistics[i], factors[i]));
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    RETURN_IF_ERROR(round(inputs[i], statistics[i], factors[i]));
  return ok();
}

Status LayerRounding::find_factors(const ProductInput& input,
                                   const quant::InputStatistics& statistics,
                                   std::vector<float>& factors) {
  if (input.expert >= 0 && input.place.norm != graph::kNone) {
    ASSIGN_OR_RETURN(factors, factors_of_norm(input.place, graph_, checkpoint_, changed_));
  } else if (saw_enough(input, statistics)) {
    RETURN_IF_ERROR(search(input, statistics, factors));
  }
  for (const graph::WeightId id : input.weights) {
    std::vector<float>& matrix = matrices_[id];
    for (size_t i = 0; i < matrix.size(); ++i) matrix[i] *= factors[i % factors.size()];
  }
  return ok();
}

Status LayerRounding::search(const ProductInput& input, const quant::InputStatistics& statistics,
                             std::vector<float>& factors) {
  // Factors are searched for the coarsest of the formats.
  std::vector<graph::WeightId> weights = input.weights;
  weights.insert(weights.end(), input.expert_weights.begin(), input.expert_weights.end());
  kernels::WeightFormat format = format_of(weights[0]);
  for (const graph::WeightId id : weights)
    if (format_of(id).bits < format.bits) format = format_of(id);
  const quant::ScaleSearch wanted{format, input.place.repeat, input.place.times};
  // One matrix at a time: there may be hundreds of experts.
  const auto for_each = [&](const std::function<Status(std::span<const float>)>& use) -> Status {
    for (const graph::WeightId id : input.weights) RETURN_IF_ERROR(use(matrices_[id]));
    std::vector<float> matrix;
    for (const graph::WeightId id : input.expert_weights)
      for (int64_t e = 0; e < graph_.weights[id].experts; ++e) {
        RETURN_IF_ERROR(read_matrix(id, e, matrix));
        RETURN_IF_ERROR(use(matrix));
      }
    return ok();
  };
  if (options_.smoothing) {
    ASSIGN_OR_RETURN(factors,
                     quant::smoothing_factors(wanted, for_each, statistics.largest_magnitudes(),
                                              *options_.smoothing));
  } else {
    ASSIGN_OR_RETURN(factors,
                     quant::search_scales(wanted, for_each, input.k, statistics.mean_magnitudes(),
                                          statistics.mean_products(), pool_));
  }
  return input.place.norm != graph::kNone ? put_into_norm(input.place, factors)
                                          : put_into_rows(input.place, factors);
}

kernels::WeightFormat LayerRounding::format_of(graph::WeightId id) const {
  return options_.format_of(models::apart_name(graph_.weights[id], 0));
}

StatusOr<std::vector<float>*> LayerRounding::vector_of(graph::WeightId id) {
  const graph::Weight& weight = graph_.weights[id];
  const auto [it, is_new] = changed_.try_emplace(weight.parts[0].tensor);
  if (is_new) {
    it->second.resize(static_cast<size_t>(weight.k));
    RETURN_IF_ERROR(read_values(weight, checkpoint_, 0, it->second));
  }
  return &it->second;
}

// Divides the norm's weight, rounds it to bf16, and sets the factors to the divisors that result.
Status LayerRounding::put_into_norm(const FactorPlace& place, std::vector<float>& factors) {
  ASSIGN_OR_RETURN(std::vector<float>* const norm, vector_of(place.norm));
  for (size_t i = 0; i < factors.size(); ++i) {
    const float old = (*norm)[i] + place.norm_offset;
    const float rounded = to_float(to_bf16(old / factors[i] - place.norm_offset));
    const float divided = rounded + place.norm_offset;
    if (old == 0 || divided == 0) {
      factors[i] = 1;
      continue;
    }
    (*norm)[i] = rounded;
    factors[i] = old / divided;
  }
  if (place.norm_bias == graph::kNone) return ok();
  ASSIGN_OR_RETURN(std::vector<float>* const bias, vector_of(place.norm_bias));
  for (size_t i = 0; i < factors.size(); ++i)
    (*bias)[i] = to_float(to_bf16((*bias)[i] / factors[i]));
  return ok();
}

Status LayerRounding::put_into_rows(const FactorPlace& place, std::span<const float> factors) {
  const auto found = matrices_.find(place.rows);
  if (found == matrices_.end())
    return internal_error("weight '{}' is of another layer", graph_.weights[place.rows].name);
  std::vector<float>& matrix = found->second;
  std::vector<float>* bias = nullptr;
  if (place.rows_bias != graph::kNone) {
    ASSIGN_OR_RETURN(bias, vector_of(place.rows_bias));
  }
  const int64_t k = graph_.weights[place.rows].k;
  for (int64_t column = 0; column < static_cast<int64_t>(factors.size()); ++column) {
    if (column / place.repeat % place.times != 0) continue;  // its row was divided already
    const float factor = factors[static_cast<size_t>(column)];
    const int64_t row = place.row_of(column);
    for (int64_t i = 0; i < k; ++i) matrix[static_cast<size_t>(row * k + i)] /= factor;
    if (bias) {
      float& x = (*bias)[static_cast<size_t>(row)];
      x = to_float(to_bf16(x / factor));
    }
  }
  return ok();
}

Status LayerRounding::round(const ProductInput& input, const quant::InputStatistics& statistics,
                            std::span<const float> factors) {
  if (options_.one_scale) {
    round_with_one_scale(input);
    return ok();
  }
  const bool calibrates = options_.error_feedback || options_.takes_factors();
  const bool enough = saw_enough(input, statistics);
  if (calibrates && !enough) num_unseen_ += static_cast<int64_t>(input.weights.size());
  std::optional<quant::ErrorFeedback> feedback;
  if (options_.error_feedback && enough && !input.weights.empty()) {
    std::vector<double> products = statistics.mean_products();
    for (size_t i = 0; i < products.size(); ++i)
      products[i] /= double{factors[i / factors.size()]} * factors[i % factors.size()];
    const double damping = options_.damping + kDampingOfFewRows * static_cast<double>(input.k) /
                                                  static_cast<double>(statistics.num_rows());
    ASSIGN_OR_RETURN(feedback, quant::ErrorFeedback::create(std::move(products), input.k, damping,
                                                            options_.act_order, pool_));
  }
  const std::vector<double> drift = statistics.mean_drift();
  for (const graph::WeightId id : input.weights) {
    std::vector<float> matrix = std::move(matrices_[id]);
    if (feedback && statistics.keeps_drift()) feedback->follow(drift, matrix, pool_);
    matrices_[id] = {};
    const kernels::WeightFormat format = format_of(id);
    kernels::QuantizedPlanes& planes = planes_[id];
    Status status;
    if (feedback) {
      status = feedback->round(format, matrix, pool_, planes);
    } else {
      std::vector<BF16> numbers;
      for (const float x : matrix) numbers.push_back(to_bf16(x));
      status =
          kernels::quantize(format, kernels::WeightLayout::kRowMajor, numbers, input.k, planes);
    }
    RETURN_IF_ERROR(annotate(status, graph_.weights[id].name));
  }
  return ok();
}

// f8e4m3: Q, K and V share a scale, because TensorRT-LLM fuses them.
void LayerRounding::round_with_one_scale(const ProductInput& input) {
  const auto largest = [](std::span<const float> matrix) {
    float most = 0;
    for (const float x : matrix) most = std::max(most, std::fabs(x));
    return most;
  };
  float most = 0;
  for (const graph::WeightId id : input.weights) most = std::max(most, largest(matrices_[id]));
  for (const graph::WeightId id : input.weights) {
    const std::vector<float> matrix = std::move(matrices_[id]);
    matrices_[id] = {};
    const kernels::WeightFormat format = format_of(id);
    const bool is_float8 = format.scheme == kernels::Scheme::kFloat8;
    constexpr float kLeast = 1e-12f, kLargestByte = 127;
    const float scale = is_float8 ? std::max(most, kLeast) / kLargestF8E4M3
                                  : std::max(largest(matrix), kLeast) / kLargestByte;
    const int64_t k = input.k, n = static_cast<int64_t>(matrix.size()) / k;
    kernels::QuantizedPlanes& planes = planes_[id];
    planes = kernels::empty_planes(format, kernels::WeightLayout::kRowMajor, n, k);
    std::fill(planes.scales.begin(), planes.scales.end(), scale);
    for (int64_t i = 0; i < n * k; ++i) {
      const float steps = matrix[static_cast<size_t>(i)] / scale;
      const kernels::IntegerPlace place =
          kernels::integer_place(kernels::WeightLayout::kRowMajor, format, i / k, i % k, k);
      planes.data[static_cast<size_t>(place.byte)] =
          is_float8 ? to_f8e4m3(steps).bits
                    : static_cast<uint8_t>(static_cast<int32_t>(std::nearbyint(steps)) +
                                           format.default_zero());
    }
  }
}

}  // namespace nereid::convert
