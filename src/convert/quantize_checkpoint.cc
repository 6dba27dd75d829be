#include "convert/quantize_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "convert/layer_rounding.h"
#include "convert/new_directory.h"
#include "convert/packed_tensors.h"
#include "convert/pretty_json.h"
#include "convert/trtllm_checkpoint.h"
#include "convert/weight_source.h"
#include "models/family.h"
#include "models/score_head.h"

namespace nereid::convert {
namespace {

constexpr std::string_view kWeightEnd = ".weight";

bool is_quantized_file(std::string_view name) {
  return name == "model.safetensors" || is_checkpoint_file(name);
}

std::string_view module_of(std::string_view tensor) {
  if (tensor.ends_with(kWeightEnd)) tensor.remove_suffix(kWeightEnd.size());
  return tensor;
}

// A tensor that is rounded, and the weights that have rows of it.
struct Target {
  std::string name;
  int64_t n = 0, k = 0;
  kernels::WeightFormat format;
  std::vector<graph::WeightId> weights;
};

// What is rounded, in the order in which it is written.
struct Selection {
  std::vector<ProductInput> inputs;
  std::vector<std::vector<Target>> targets;  // of each input
  std::vector<std::string> left;             // modules of products that stay as they are
  std::optional<Target> head;                // where it is rounded
};

// Whether a part is whole rows of a matrix of floats as nn.Linear has them.
bool is_rows(const graph::WeightPart& part, const io::Checkpoint& checkpoint) {
  const io::Checkpoint::Entry* entry = checkpoint.find(part.tensor);
  return entry && entry->tensor->type && !entry->tensor->encoding && !part.transposed &&
         part.stacked == 0 && part.cols == 0 && part.total_cols == 0 && part.first_col == 0 &&
         part.pairs == 0 && !part.unit_rows && part.tensor.ends_with(kWeightEnd);
}

graph::WeightId head_weight(const graph::Graph& graph) {
  graph::WeightId head = graph::kNone;
  for (const graph::Node& node : graph.nodes)
    if (const auto* linear = std::get_if<graph::Linear>(&node.op)) head = linear->weight;
  return head;
}

StatusOr<Selection> select(const models::Model& model, const io::Checkpoint& checkpoint,
                           const QuantizeOptions& options) {
  const graph::Graph& graph = model.graph;
  std::map<std::string_view, std::vector<graph::WeightId>> users;  // of a tensor
  for (size_t i = 0; i < graph.weights.size(); ++i)
    for (const graph::WeightPart& part : graph.weights[i].parts) {
      auto& ids = users[part.tensor];
      if (ids.empty() || ids.back() != static_cast<graph::WeightId>(i))
        ids.push_back(static_cast<graph::WeightId>(i));
    }
  const auto is_left = [&](const graph::WeightPart& part) {
    return std::ranges::any_of(options.exclude, [&](const std::string& pattern) {
      return matches_pattern(pattern, module_of(part.tensor));
    });
  };
  const auto fits = [&](graph::WeightId id) {
    const graph::Weight& weight = graph.weights[id];
    const kernels::WeightFormat format = options.format_of(weight.parts[0].tensor);
    return weight.experts == 1 && can_store_packed(format, weight.k) &&
           std::ranges::all_of(weight.parts, [&](const graph::WeightPart& part) {
             return is_rows(part, checkpoint) && !is_left(part) &&
                    options.format_of(part.tensor) == format;
           });
  };
  // A tensor is rounded whole: all its weights, by products of one input.
  const auto all_products = product_inputs(graph, [](graph::WeightId) { return true; });
  std::set<graph::WeightId> chosen;
  for (const ProductInput& input : all_products)
    for (const graph::WeightId id : input.weights) {
      const bool whole =
          std::ranges::all_of(graph.weights[id].parts, [&](const graph::WeightPart& part) {
            return std::ranges::all_of(users[part.tensor], [&](graph::WeightId user) {
              return fits(user) && std::ranges::find(input.weights, user) != input.weights.end();
            });
          });
      if (whole) chosen.insert(id);
    }
  Selection out;
  std::set<std::string> rounded;
  const graph::WeightId head = head_weight(graph);
  if (options.quantize_head && head != graph::kNone && !is_left(graph.weights[head].parts[0])) {
    const bool whole = graph.weights[head].parts.size() == 1 &&
                       users[graph.weights[head].parts[0].tensor].size() == 1 &&
                       is_rows(graph.weights[head].parts[0], checkpoint) &&
                       can_store_packed(options.head_format(), graph.weights[head].k);
    if (!whole)
      return invalid_argument(
          "quantize_lm_head: the head of {} is also its embedding, or is not stored as rows of "
          "floats; leave the flag out",
          options.model_dir.string());
    const graph::Weight& weight = graph.weights[head];
    out.head = Target{weight.parts[0].tensor, weight.n, weight.k, options.head_format(), {head}};
    rounded.insert(out.head->name);
  }
  out.inputs = product_inputs(graph, [&](graph::WeightId id) { return chosen.contains(id); });
  for (const ProductInput& input : out.inputs) {
    std::vector<Target>& targets = out.targets.emplace_back();
    for (const graph::WeightId id : input.weights)
      for (const graph::WeightPart& part : graph.weights[id].parts)
        if (rounded.insert(part.tensor).second)
          targets.push_back({part.tensor, part.tensor_rows(), graph.weights[id].k,
                             options.format_of(part.tensor), users[part.tensor]});
  }
  for (const graph::Node& node : graph.nodes)
    for (const graph::WeightId id : graph::matrices(node.op))
      for (const graph::WeightPart& part : graph.weights[id].parts)
        if (!rounded.contains(part.tensor) && !std::holds_alternative<graph::Embed>(node.op))
          out.left.emplace_back(module_of(part.tensor));
  std::ranges::sort(out.left);
  out.left.erase(std::unique(out.left.begin(), out.left.end()), out.left.end());
  return out;
}

// Puts the weights' rows where the tensor has them.
RoundedTensor assemble(const Target& target, const graph::Graph& graph,
                       const LayerRounding& layer) {
  const kernels::WeightFormat& format = target.format;
  const int64_t groups = format.num_groups(target.k);
  RoundedTensor out{.name = target.name, .n = target.n, .k = target.k};
  out.codes.resize(static_cast<size_t>(target.n * target.k));
  out.scales.resize(static_cast<size_t>(target.n * groups));
  if (format.zeros) out.zeros.resize(out.scales.size());
  for (const graph::WeightId id : target.weights) {
    const graph::Weight& weight = graph.weights[id];
    const kernels::QuantizedPlanes& planes = layer.planes(id);
    int64_t from = 0;
    for (const graph::WeightPart& part : weight.parts)
      for (int64_t r = 0; r < part.size; ++r, ++from) {
        if (part.tensor != target.name) continue;
        const int64_t to = part.tensor_row(r);
        for (int64_t col = 0; col < target.k; ++col) {
          const kernels::IntegerPlace place =
              kernels::integer_place(kernels::WeightLayout::kRowMajor, format, from, col, target.k);
          out.codes[static_cast<size_t>(to * target.k + col)] =
              static_cast<uint8_t>(planes.data[static_cast<size_t>(place.byte)] >> place.shift &
                                   ((1 << format.bits) - 1));
        }
        for (int64_t g = 0; g < groups; ++g) {
          const auto at = static_cast<size_t>(from * groups + g);
          out.scales[static_cast<size_t>(to * groups + g)] = planes.scales[at];
          if (format.zeros) out.zeros[static_cast<size_t>(to * groups + g)] = planes.zeros[at];
        }
      }
  }
  return out;
}

class Quantizer {
 public:
  Quantizer(const QuantizeOptions& options, const models::Model& model,
            const io::Checkpoint& checkpoint, ThreadPool& pool)
      : options_(options), model_(model), checkpoint_(checkpoint), pool_(pool) {}

  Status write(const std::filesystem::path& path, QuantizeReport& report) {
    ASSIGN_OR_RETURN(selection_, select(model_, checkpoint_, options_));
    if (selection_.inputs.empty())
      return invalid_argument(
          "{}: no matrix can be rounded to {}: all are excluded, stored transposed or stacked, or "
          "have columns that are no multiple of the group",
          options_.model_dir.string(), kernels::text_of(options_.format));
    RETURN_IF_ERROR(create(path));
    const auto& inputs = selection_.inputs;
    progress_.num_layers = 0;
    for (size_t i = 0; i < inputs.size(); ++i)
      progress_.num_layers += i == 0 || inputs[i].layer != inputs[i - 1].layer;
    for (size_t begin = 0; begin < inputs.size();) {
      const size_t end = batch_end(begin);
      std::vector<quant::InputStatistics> statistics;
      RETURN_IF_ERROR(collect(begin, end, statistics));
      for (size_t first = begin; first < end;) {
        size_t last = first;
        while (last < end && inputs[last].layer == inputs[first].layer) ++last;
        RETURN_IF_ERROR(write_layer(first, last, std::span(statistics), begin));
        first = last;
      }
      begin = end;
    }
    RETURN_IF_ERROR(write_head());
    RETURN_IF_ERROR(write_others());
    RETURN_IF_ERROR(writer_->finish());
    report.num_matrices = progress_.matrices_done;
    report.num_int8 = num_int8_;
    report.num_left = static_cast<int64_t>(selection_.left.size());
    for (const io::Checkpoint::Entry& entry : checkpoint_.entries())
      report.bytes_before += entry.tensor->data.size();
    report.bytes_after = bytes_after_;
    return ok();
  }

  json::object config() const {
    json::object config = model_.config;
    ModulesOfFormat others;
    const auto add = [&](const Target& target) {
      if (target.format == options_.format) return;
      others.names.emplace_back(module_of(target.name));
      others.format = target.format;
    };
    for (const std::vector<Target>& targets : selection_.targets)
      std::ranges::for_each(targets, add);
    if (selection_.head) add(*selection_.head);
    config["quantization_config"] = packed_config(options_.format, selection_.left, others);
    return config;
  }

 private:
  bool calibrates() const { return options_.takes_factors() || options_.error_feedback; }
  bool needs_products() const { return options_.search_scales || options_.error_feedback; }

  // All tensors of the file: rounded ones by layers, then the others.
  Status create(const std::filesystem::path& path) {
    std::vector<io::TensorInfo> infos;
    std::set<std::string_view> rounded;
    for (const std::vector<Target>& targets : selection_.targets)
      for (const Target& target : targets) {
        const auto parts = packed_infos(target.format, target.name, target.n, target.k);
        infos.insert(infos.end(), parts.begin(), parts.end());
        rounded.insert(target.name);
        num_int8_ += target.format != options_.format;
      }
    if (selection_.head) {
      const Target& head = *selection_.head;
      const auto parts = packed_infos(head.format, head.name, head.n, head.k);
      infos.insert(infos.end(), parts.begin(), parts.end());
      rounded.insert(head.name);
    }
    for (const io::Checkpoint::Entry& entry : checkpoint_.entries()) {
      if (rounded.contains(entry.tensor->name)) continue;
      others_.push_back(entry.tensor);
      infos.push_back({entry.tensor->name, type_of(*entry.tensor), entry.tensor->shape});
    }
    for (const io::TensorInfo& info : infos) bytes_after_ += info.bytes();
    ASSIGN_OR_RETURN(io::SafetensorsWriter writer, io::SafetensorsWriter::create(path, infos));
    writer_.emplace(std::move(writer));
    return ok();
  }
  // What is changed is bf16 or f32.
  DType type_of(const io::StoredTensor& tensor) const {
    return tensor.type == DType::kF16 && options_.takes_factors() ? DType::kF32 : *tensor.type;
  }

  // Whole layers, as many as the memory for statistics allows.
  size_t batch_end(size_t begin) const {
    if (options_.sequential) return begin + 1;
    const auto& inputs = selection_.inputs;
    uint64_t bytes = 0;
    size_t end = begin;
    while (end < inputs.size()) {
      size_t next = end;
      for (; next < inputs.size() && inputs[next].layer == inputs[end].layer; ++next)
        bytes += static_cast<uint64_t>(inputs[next].k * inputs[next].k) * sizeof(float);
      if (end > begin && bytes > options_.statistics_bytes) break;
      end = next;
    }
    return end;
  }

  Status collect(size_t begin, size_t end, std::vector<quant::InputStatistics>& statistics) {
    const auto& inputs = selection_.inputs;
    for (size_t i = begin; i < end; ++i) {
      statistics.emplace_back(inputs[i].k, needs_products());
      if (options_.sequential) statistics.back().keep_drift();
    }
    if (!calibrates()) return ok();
    std::map<std::string, quant::InputStatistics*> wanted;
    for (size_t i = begin; i < end; ++i)
      wanted.emplace(model_.graph.weights[inputs[i].weights.front()].name, &statistics[i - begin]);
    RETURN_IF_ERROR(options_.collect(wanted));
    for (const auto& [name, one] : wanted)
      if (one->num_rows() == 0)
        return internal_error("calibration: nothing was seen of what '{}' multiplies", name);
    return ok();
  }

  Status write_layer(size_t first, size_t last, std::span<quant::InputStatistics> statistics,
                     size_t offset) {
    LayerRounding layer(options_, model_.graph, checkpoint_, pool_, changed_);
    RETURN_IF_ERROR(layer.run(std::span(selection_.inputs).subspan(first, last - first),
                              statistics.subspan(first - offset, last - first)));
    for (size_t i = first; i < last; ++i)
      for (const Target& target : selection_.targets[i]) {
        RETURN_IF_ERROR(
            write_packed(target.format, assemble(target, model_.graph, layer), *writer_));
        forget_pages(checkpoint_.find(target.name)->tensor->data);
        ++progress_.matrices_done;
      }
    if (options_.sequential) RETURN_IF_ERROR(use_rounded(selection_.inputs[first], layer));
    const bool ends = last == selection_.inputs.size() ||
                      selection_.inputs[last].layer != selection_.inputs[first].layer;
    if (!ends) return ok();
    ++progress_.layers_done;
    if (options_.progress) options_.progress(progress_);
    return ok();
  }

  Status use_rounded(const ProductInput& input, const LayerRounding& layer) {
    for (const graph::WeightId id : input.weights) {
      const graph::Weight& weight = model_.graph.weights[id];
      const kernels::WeightFormat format = options_.format_of(weight.parts[0].tensor);
      std::vector<BF16> matrix(static_cast<size_t>(weight.n * weight.k));
      RETURN_IF_ERROR(kernels::unpack_rows(
          layer.planes(id).view(format, kernels::WeightLayout::kRowMajor, weight.n, weight.k), 0,
          weight.n, matrix.data()));
      RETURN_IF_ERROR(options_.use_rounded(weight.name, matrix, weight.k));
    }
    return ok();
  }

  // Some rows at a time; its codes are kept.
  Status write_head() {
    if (!selection_.head) return ok();
    constexpr int64_t kMostNumbers = int64_t{1} << 22;
    const Target& head = *selection_.head;
    const kernels::WeightFormat& format = head.format;
    const graph::Weight& weight = model_.graph.weights[head.weights[0]];
    RoundedTensor out{.name = head.name, .n = head.n, .k = head.k};
    const int64_t most = std::max<int64_t>(1, kMostNumbers / head.k);
    for (int64_t row = 0; row < head.n; row += most) {
      const auto count = static_cast<size_t>(std::min(most, head.n - row) * head.k);
      std::vector<float> floats(count);
      RETURN_IF_ERROR(read_values(weight, checkpoint_, row * head.k, floats));
      std::vector<BF16> numbers;
      for (const float x : floats) numbers.push_back(to_bf16(x));
      kernels::QuantizedPlanes planes;
      RETURN_IF_ERROR(annotate(
          kernels::quantize(format, kernels::WeightLayout::kRowMajor, numbers, head.k, planes),
          head.name));
      out.codes.insert(out.codes.end(), planes.data.begin(), planes.data.end());
      out.scales.insert(out.scales.end(), planes.scales.begin(), planes.scales.end());
    }
    RETURN_IF_ERROR(write_packed(format, out, *writer_));
    forget_pages(checkpoint_.find(head.name)->tensor->data);
    ++progress_.matrices_done;
    return ok();
  }

  Status write_others() {
    for (const io::StoredTensor* tensor : others_) {
      const auto it = changed_.find(tensor->name);
      const bool widened = type_of(*tensor) != *tensor->type;
      if (it == changed_.end() && !widened) {
        RETURN_IF_ERROR(writer_->append(tensor->data));
      } else {
        std::vector<float> numbers;
        if (it != changed_.end()) {
          numbers = it->second;
        } else {
          for (size_t i = 0; i < tensor->data.size() / sizeof(F16); ++i) {
            F16 half;
            std::memcpy(&half, tensor->data.data() + i * sizeof half, sizeof half);
            numbers.push_back(to_float(half));
          }
        }
        RETURN_IF_ERROR(append_numbers(numbers, type_of(*tensor)));
      }
      forget_pages(tensor->data);
    }
    return ok();
  }
  Status append_numbers(const std::vector<float>& numbers, DType type) {
    if (type == DType::kF32) return writer_->append(std::as_bytes(std::span(numbers)));
    std::vector<BF16> rounded;
    for (const float x : numbers) rounded.push_back(to_bf16(x));
    return writer_->append(std::as_bytes(std::span(rounded)));
  }

  const QuantizeOptions& options_;
  const models::Model& model_;
  const io::Checkpoint& checkpoint_;
  ThreadPool& pool_;
  Selection selection_;
  std::vector<const io::StoredTensor*> others_;
  ChangedVectors changed_;
  std::optional<io::SafetensorsWriter> writer_;
  QuantizeProgress progress_;
  int64_t num_int8_ = 0;
  uint64_t bytes_after_ = 0;
};

Status check_options(const QuantizeOptions& options, const models::Model& model) {
  if (model.layout != models::Layout::kHuggingFace)
    return unsupported("{}: only Hugging Face directories are quantised",
                       options.model_dir.string());
  if (!model.quantization.empty())
    return invalid_argument("{}: is quantised already ({}); begin with the float model",
                            options.model_dir.string(), model.quantization.method);
  const bool calibrates = options.takes_factors() || options.error_feedback;
  if (calibrates && !options.collect) return internal_error("calibration without inputs");
  if (options.smoothing && options.search_scales)
    return invalid_argument("smoothing: factors are searched for as well; choose one");
  if (options.smoothing && !(*options.smoothing >= 0 && *options.smoothing <= 1))
    return invalid_argument("smoothing: {} is not from 0 to 1", *options.smoothing);
  if (!(options.damping > 0) || options.damping > 1)
    return invalid_argument("damping: {} is not above 0 and at most 1", options.damping);
  if (options.sequential && (!options.error_feedback || options.takes_factors()))
    return invalid_argument("sequential: is for error feedback without factors of columns");
  if (options.sequential && !options.use_rounded)
    return internal_error("sequential calibration without a model to follow");
  if (!options.int8_modules.empty() && options.head_format() == options.format)
    return invalid_argument("int8_modules: all matrices become {}; leave it out",
                            kernels::text_of(options.format));
  return ok();
}

}  // namespace

kernels::WeightFormat QuantizeOptions::format_of(std::string_view tensor) const {
  const bool wide = std::ranges::any_of(int8_modules, [&](const std::string& pattern) {
    return matches_pattern(pattern, module_of(tensor));
  });
  return wide ? kernels::kInt8PerRow : format;
}

bool matches_pattern(std::string_view pattern, std::string_view name) {
  // The last star takes one more character where the rest does not match.
  size_t p = 0, n = 0, star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, taken = n;
    } else if (p < pattern.size() && (pattern[p] == name[n] || pattern[p] == '?')) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1, n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

StatusOr<QuantizeReport> quantize_checkpoint(const QuantizeOptions& options, ThreadPool& pool) {
  std::error_code error;
  if (std::filesystem::equivalent(options.model_dir, options.output_dir, error))
    return invalid_argument("output_dir: {} is also model_dir; name another directory",
                            options.output_dir.string());
  ASSIGN_OR_RETURN(const models::Model model, models::read_model(options.model_dir));
  RETURN_IF_ERROR(models::refuse_score_head(model));
  RETURN_IF_ERROR(check_options(options, model));
  ASSIGN_OR_RETURN(const io::Checkpoint checkpoint,
                   models::open_checkpoint(model, options.model_dir));
  RETURN_IF_ERROR(
      models::check_tensors(model.graph, checkpoint, model.traits, model.family->ignores));
  ASSIGN_OR_RETURN(NewDirectory output,
                   NewDirectory::create(options.output_dir, is_quantized_file));
  QuantizeReport report;
  Quantizer quantizer(options, model, checkpoint, pool);
  RETURN_IF_ERROR(quantizer.write(output.path() / "model.safetensors", report));
  RETURN_IF_ERROR(copy_tokenizer(options.model_dir, output.path()));
  RETURN_IF_ERROR(
      write_file_atomic(output.path() / "config.json", pretty_json(quantizer.config())));
  RETURN_IF_ERROR(output.finish());
  return report;
}

}  // namespace nereid::convert
