// CUDA rows of all ops' tables.
#pragma once

#include <span>
#include <string_view>

#include "kernels/api/registry.h"

namespace nereid::kernels::cuda {

void add_kernels(Registry& registry);

// Whether the kernel of that name uses the library for the product.
bool is_for_library(std::string_view kernel, const Linear& args, int sm);

// See ProductTuner (cublaslt_measure.cc).
StatusOr<AlgorithmChoices> measure_products(std::span<const ProductTuner::Product> products,
                                            Device& device);
void use_choices(const AlgorithmChoices& choices, Stream& stream);

}  // namespace nereid::kernels::cuda
