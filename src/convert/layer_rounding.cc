#include "convert/layer_rounding.h"

#include <algorithm>

#include "convert/weight_source.h"
#include "quant/error_feedback.h"
#include "quant/scale_search.h"

namespace nereid::convert {

Status LayerRounding::run(std::span<const ProductInput> inputs,
                          std::span<const quant::InputStatistics> statistics) {
  for (const ProductInput& input : inputs)
    for (const graph::WeightId id : input.weights) {
      const graph::Weight& weight = graph_.weights[id];
      std::vector<float>& matrix = matrices_[id];
      matrix.resize(static_cast<size_t>(weight.n * weight.k));
      RETURN_IF_ERROR(read_values(weight, checkpoint_, 0, matrix));
    }
  // All factors first: those of one product's input may go into rows of another.
  std::vector<std::vector<float>> factors(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    factors[i].assign(static_cast<size_t>(inputs[i].k), 1);
    if (options_.takes_factors() && inputs[i].place.is_there())
      RETURN_IF_ERROR(search(inputs[i], statistics[i], factors[i]));
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    RETURN_IF_ERROR(round(inputs[i], statistics[i], factors[i]));
  return ok();
}

Status LayerRounding::search(const ProductInput& input, const quant::InputStatistics& statistics,
                             std::vector<float>& factors) {
  // Of the matrices it is the coarsest format that the factors matter to.
  kernels::WeightFormat format = format_of(input.weights[0]);
  for (const graph::WeightId id : input.weights)
    if (format_of(id).bits < format.bits) format = format_of(id);
  const quant::ScaleSearch wanted{format, input.place.repeat, input.place.times};
  std::vector<std::vector<float>> matrices;
  for (const graph::WeightId id : input.weights) matrices.push_back(matrices_[id]);
  if (options_.smoothing) {
    factors = quant::smoothing_factors(wanted, matrices, statistics.largest_magnitudes(),
                                       *options_.smoothing);
  } else {
    ASSIGN_OR_RETURN(factors,
                     quant::search_scales(wanted, matrices, input.k, statistics.mean_magnitudes(),
                                          statistics.mean_products(), pool_));
  }
  if (input.place.norm != graph::kNone)
    RETURN_IF_ERROR(put_into_norm(input.place, factors));
  else
    RETURN_IF_ERROR(put_into_rows(input.place, factors));
  for (const graph::WeightId id : input.weights) {
    std::vector<float>& matrix = matrices_[id];
    for (size_t i = 0; i < matrix.size(); ++i) matrix[i] *= factors[i % factors.size()];
  }
  return ok();
}

kernels::WeightFormat LayerRounding::format_of(graph::WeightId id) const {
  return options_.format_of(graph_.weights[id].parts[0].tensor);
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

// The norm's weight is rounded to bf16, and the factors become what it is divided by then.
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
    if (column / place.repeat % place.times != 0) continue;  // a row of one before
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
  std::optional<quant::ErrorFeedback> feedback;
  if (options_.error_feedback) {
    std::vector<double> products = statistics.mean_products();
    for (size_t i = 0; i < products.size(); ++i)
      products[i] /= double{factors[i / factors.size()]} * factors[i % factors.size()];
    ASSIGN_OR_RETURN(feedback,
                     quant::ErrorFeedback::create(std::move(products), input.k, options_.damping,
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

}  // namespace nereid::convert
