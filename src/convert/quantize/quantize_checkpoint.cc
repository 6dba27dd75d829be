#include "convert/quantize/quantize_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "convert/new_directory.h"
#include "convert/packed_tensors.h"
#include "convert/pretty_json.h"
#include "convert/quantize/layer_rounding.h"
#include "convert/quantize/quantize_record.h"
#include "convert/quantize/quantize_selection.h"
#include "convert/trtllm_checkpoint.h"
#include "convert/weight_source.h"
#include "models/encoder.h"
#include "models/family.h"
#include "models/score_head.h"

namespace nereid::convert {
namespace {

bool is_quantized_file(std::string_view name) {
  return name == "model.safetensors" || is_checkpoint_file(name);
}

RoundedTensor empty_tensor(const Target& target) {
  RoundedTensor out{.name = target.name, .n = target.n, .k = target.k};
  out.codes.resize(static_cast<size_t>(target.n * target.k));
  out.scales.resize(static_cast<size_t>(target.n * target.format.num_groups(target.k)));
  if (target.format.zeros) out.zeros.resize(out.scales.size());
  return out;
}

// Copies rounded row `from` to row `to` of the tensor.
void copy_row(const kernels::WeightFormat& format, const kernels::QuantizedPlanes& planes,
              int64_t from, int64_t to, RoundedTensor& out) {
  for (int64_t col = 0; col < out.k; ++col) {
    const kernels::IntegerPlace place =
        kernels::integer_place(kernels::WeightLayout::kRowMajor, format, from, col, out.k);
    out.codes[static_cast<size_t>(to * out.k + col)] = static_cast<uint8_t>(
        planes.data[static_cast<size_t>(place.byte)] >> place.shift & ((1 << format.bits) - 1));
  }
  const int64_t groups = format.num_groups(out.k);
  for (int64_t g = 0; g < groups; ++g) {
    const auto at = static_cast<size_t>(from * groups + g);
    out.scales[static_cast<size_t>(to * groups + g)] = planes.scales[at];
    if (format.zeros) out.zeros[static_cast<size_t>(to * groups + g)] = planes.zeros[at];
  }
}

// Arranges the weights' rows in the tensor's order.
RoundedTensor assemble(const Target& target, const graph::Graph& graph,
                       const LayerRounding& layer) {
  RoundedTensor out = empty_tensor(target);
  if (target.expert >= 0) {
    for (int64_t row = 0; row < target.n; ++row)
      copy_row(target.format, layer.planes(target.weights[0]), row, row, out);
    return out;
  }
  for (const graph::WeightId id : target.weights) {
    int64_t from = 0;
    for (const graph::WeightPart& part : graph.weights[id].parts)
      for (int64_t r = 0; r < part.size; ++r, ++from)
        if (part.tensor == target.name)
          copy_row(target.format, layer.planes(id), from, part.tensor_row(r), out);
  }
  return out;
}

class Quantizer {
 public:
  Quantizer(const QuantizeOptions& options, const models::Model& model,
            const io::Checkpoint& checkpoint, NewDirectory& output, ThreadPool& pool)
      : options_(options),
        model_(model),
        checkpoint_(checkpoint),
        output_(output),
        pool_(pool),
        file_(output.path(), quantize_key(options, model, checkpoint)) {}

  Status write(QuantizeReport& report) {
    ASSIGN_OR_RETURN(selection_, select(model_, checkpoint_, options_));
    if (selection_.inputs.empty() && !selection_.head)
      return invalid_argument(
          "{}: no matrix can be rounded to {}: all are excluded, or have columns that are not a "
          "multiple of the group",
          options_.model_dir.string(), kernels::text_of(options_.format));
    const bool has_experts = std::ranges::any_of(
        selection_.inputs, [](const ProductInput& input) { return input.expert >= 0; });
    if (options_.sequential && has_experts)
      return invalid_argument(
          "sequential: {} has experts, and rounding before them changes their routing; leave it "
          "out, "
          "or exclude the experts",
          options_.model_dir.string());
    RETURN_IF_ERROR(create());
    const auto& inputs = selection_.inputs;
    record_.progress.num_layers = 0;
    for (size_t i = 0; i < inputs.size(); ++i)
      record_.progress.num_layers += i == 0 || inputs[i].layer != inputs[i - 1].layer;
    RETURN_IF_ERROR(go_on());
    for (size_t begin = record_.num_inputs; begin < inputs.size();) {
      const size_t end = batch_end(begin);
      std::vector<quant::InputStatistics> statistics;
      RETURN_IF_ERROR(collect(begin, end, statistics));
      for (size_t first = begin; first < end;) {
        size_t last = first;
        while (last < end && are_together(first, last)) ++last;
        RETURN_IF_ERROR(write_together(first, last, std::span(statistics), begin));
        first = last;
      }
      begin = end;
    }
    if (selection_.head) RETURN_IF_ERROR(write_head());
    RETURN_IF_ERROR(write_split());
    RETURN_IF_ERROR(write_others());
    RETURN_IF_ERROR(writer_->finish());
    report.num_matrices = record_.progress.matrices_done;
    report.num_int8 = num_int8_;
    report.num_unseen = record_.progress.num_unseen;
    report.num_left = static_cast<int64_t>(selection_.left.size());
    for (const io::Checkpoint::Entry& entry : checkpoint_.entries())
      report.bytes_before += entry.tensor->data.size();
    report.bytes_after = bytes_after_;
    return ok();
  }

  // Removes the run's record: the directory is a complete checkpoint.
  void remove_record() const { file_.remove(); }

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
    config["quantization_config"] =
        packed_config(options_.format, selection_.left, others, options_.cache);
    return config;
  }

 private:
  bool calibrates() const { return options_.takes_factors() || options_.error_feedback; }
  bool needs_products() const { return options_.search_scales || options_.error_feedback; }

  // Whether two inputs are rounded together: same layer and expert.
  bool are_together(size_t a, size_t b) const {
    const ProductInput &one = selection_.inputs[a], &other = selection_.inputs[b];
    return one.layer == other.layer && one.expert == other.expert;
  }

  // Lays out all tensors of the file: rounded ones by layer, then the others.
  Status create() {
    std::vector<io::TensorInfo> infos;
    const auto add = [&](const Target& target) {
      const auto parts = packed_infos(target.format, target.name, target.n, target.k);
      infos.insert(infos.end(), parts.begin(), parts.end());
      num_int8_ += options_.format_of(target.name) != options_.format;
    };
    for (const std::vector<Target>& targets : selection_.targets)
      std::ranges::for_each(targets, add);
    if (selection_.head) add(*selection_.head);
    for (const SplitTensor& tensor : selection_.split) {
      const graph::Weight& weight = model_.graph.weights[tensor.weight];
      std::vector<int64_t> shape = {weight.n, weight.k};
      if (weight.is_vector) shape.erase(shape.begin());
      infos.push_back({tensor.name, type_of(*checkpoint_.find(tensor.source)->tensor), shape});
    }
    for (const io::Checkpoint::Entry& entry : checkpoint_.entries()) {
      // Unit norms are left out again.
      if (selection_.replaced.contains(entry.tensor->name) || entry.tensor->encoding) continue;
      others_.push_back(entry.tensor);
      infos.push_back({entry.tensor->name, type_of(*entry.tensor), entry.tensor->shape});
    }
    for (const io::TensorInfo& info : infos) bytes_after_ += info.bytes();
    if (std::optional<QuantizeRecord> found = file_.read();
        found && found->num_inputs <= selection_.inputs.size())
      record_ = *std::move(found);
    const std::filesystem::path path = output_.path() / "model.safetensors";
    if (record_.bytes > 0) {
      auto writer = io::SafetensorsWriter::resume(path, infos, record_.bytes);
      if (writer.ok()) {
        output_.keep();
        writer_.emplace(*std::move(writer));
        return ok();
      }
    }
    record_ = {};
    RETURN_IF_ERROR(output_.clear());
    ASSIGN_OR_RETURN(io::SafetensorsWriter writer, io::SafetensorsWriter::resume(path, infos, 0));
    writer_.emplace(std::move(writer));
    return ok();
  }
  // Resumes an earlier run, and passes its rounded matrices to the calibration.
  Status go_on() {
    if (record_.bytes == 0) return ok();
    log_info("{}: resumes behind layer {} of {}", output_.path().string(),
             record_.progress.layers_done, record_.progress.num_layers);
    for (size_t i = 0; options_.sequential && i < record_.num_inputs; ++i) {
      ASSIGN_OR_RETURN(const std::vector<BF16> matrices, file_.read_matrices(i));
      RETURN_IF_ERROR(use_rounded(selection_.inputs[i], matrices));
    }
    return ok();
  }
  // Records what is done, so that a later run can resume.
  Status keep() {
    numbers_since_kept_ = 0;
    ASSIGN_OR_RETURN(record_.bytes, writer_->sync());
    RETURN_IF_ERROR(file_.write(record_));
    output_.keep();
    return ok();
  }
  // Changed tensors are bf16 or f32.
  DType type_of(const io::StoredTensor& tensor) const {
    return tensor.type == DType::kF16 && options_.takes_factors() ? DType::kF32 : *tensor.type;
  }

  // As many groups as fit into the memory for statistics.
  size_t batch_end(size_t begin) const {
    if (options_.sequential) return begin + 1;
    const auto& inputs = selection_.inputs;
    uint64_t bytes = 0;
    size_t end = begin;
    while (end < inputs.size()) {
      size_t next = end;
      for (; next < inputs.size() && are_together(end, next); ++next)
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
    for (size_t i = begin; i < end; ++i) {
      const std::string& weight = model_.graph.weights[inputs[i].reader()].name;
      const int64_t expert = inputs[i].expert;
      wanted.emplace(expert < 0 ? weight : fmt::format("{}[{}]", weight, expert),
                     &statistics[i - begin]);
    }
    RETURN_IF_ERROR(options_.collect(wanted));
    for (size_t i = begin; i < end; ++i)
      if (inputs[i].expert < 0 && statistics[i - begin].num_rows() == 0)
        return internal_error("calibration: no inputs of '{}' were collected",
                              model_.graph.weights[inputs[i].reader()].name);
    return ok();
  }

  Status write_together(size_t first, size_t last, std::span<quant::InputStatistics> statistics,
                        size_t offset) {
    LayerRounding layer(options_, model_.graph, checkpoint_, pool_, record_.changed);
    RETURN_IF_ERROR(layer.run(std::span(selection_.inputs).subspan(first, last - first),
                              statistics.subspan(first - offset, last - first)));
    for (size_t i = first; i < last; ++i)
      for (const Target& target : selection_.targets[i]) {
        RETURN_IF_ERROR(
            write_packed(target.format, assemble(target, model_.graph, layer), *writer_));
        forget_pages(checkpoint_.find(target.source)->tensor->data);
        ++record_.progress.matrices_done;
        numbers_since_kept_ += target.n * target.k;
      }
    record_.progress.num_unseen += layer.num_unseen();
    if (options_.sequential) {
      ASSIGN_OR_RETURN(const std::vector<BF16> matrices,
                       matrices_of(selection_.inputs[first], layer));
      RETURN_IF_ERROR(file_.write_matrices(first, matrices));
      RETURN_IF_ERROR(use_rounded(selection_.inputs[first], matrices));
    }
    const bool ends = last == selection_.inputs.size() ||
                      selection_.inputs[last].layer != selection_.inputs[first].layer;
    record_.progress.layers_done += ends;
    record_.num_inputs = last;
    constexpr int64_t kMostNumbers = int64_t{1} << 28;  // work that a killed run may repeat
    if (ends || options_.sequential || numbers_since_kept_ >= kMostNumbers) RETURN_IF_ERROR(keep());
    if (ends && options_.progress) options_.progress(record_.progress);
    return ok();
  }

  // The values of an input's rounded weights, concatenated.
  StatusOr<std::vector<BF16>> matrices_of(const ProductInput& input,
                                          const LayerRounding& layer) const {
    std::vector<BF16> matrices;
    for (const graph::WeightId id : input.weights) {
      const graph::Weight& weight = model_.graph.weights[id];
      const kernels::WeightFormat format = options_.format_of(weight.parts[0].tensor);
      const size_t begin = matrices.size();
      matrices.resize(begin + static_cast<size_t>(weight.n * weight.k));
      RETURN_IF_ERROR(kernels::unpack_rows(
          layer.planes(id).view(format, kernels::WeightLayout::kRowMajor, weight.n, weight.k), 0,
          weight.n, matrices.data() + begin));
    }
    return matrices;
  }
  Status use_rounded(const ProductInput& input, std::span<const BF16> matrices) {
    for (const graph::WeightId id : input.weights) {
      const graph::Weight& weight = model_.graph.weights[id];
      const auto size = static_cast<size_t>(weight.n * weight.k);
      if (matrices.size() < size)
        return unavailable("{}: a file of rounded matrices is too short; remove the directory",
                           output_.path().string());
      RETURN_IF_ERROR(options_.use_rounded(weight.name, matrices.first(size), weight.k));
      matrices = matrices.subspan(size);
    }
    return ok();
  }

  // In pieces of some rows; the codes are kept.
  Status write_head() {
    const Target& target = *selection_.head;
    constexpr int64_t kMostNumbers = int64_t{1} << 22;
    const graph::Weight& weight = model_.graph.weights[target.weights[0]];
    RoundedTensor out = empty_tensor(target);
    const int64_t most = std::max<int64_t>(1, kMostNumbers / target.k);
    for (int64_t row = 0; row < target.n; row += most) {
      const int64_t count = std::min(most, target.n - row);
      std::vector<float> floats(static_cast<size_t>(count * target.k));
      RETURN_IF_ERROR(read_values(weight, checkpoint_, row * target.k, floats));
      std::vector<BF16> numbers;
      for (const float x : floats) numbers.push_back(to_bf16(x));
      kernels::QuantizedPlanes planes;
      RETURN_IF_ERROR(annotate(kernels::quantize(target.format, kernels::WeightLayout::kRowMajor,
                                                 numbers, target.k, planes),
                               target.name));
      for (int64_t r = 0; r < count; ++r) copy_row(target.format, planes, r, row + r, out);
    }
    RETURN_IF_ERROR(write_packed(target.format, out, *writer_));
    forget_pages(checkpoint_.find(target.source)->tensor->data);
    ++record_.progress.matrices_done;
    return ok();
  }

  Status write_split() {
    for (const SplitTensor& tensor : selection_.split) {
      const graph::Weight& weight = model_.graph.weights[tensor.weight];
      std::vector<float> numbers(static_cast<size_t>(weight.n * weight.k));
      RETURN_IF_ERROR(
          read_values(weight, checkpoint_, tensor.expert * weight.n * weight.k, numbers));
      const io::StoredTensor& source = *checkpoint_.find(tensor.source)->tensor;
      RETURN_IF_ERROR(append_numbers(numbers, type_of(source)));
      forget_pages(source.data);
    }
    return ok();
  }

  Status write_others() {
    const std::map<std::string_view, Follower> followers = find_followers();
    for (const io::StoredTensor* tensor : others_) {
      const auto changed = record_.changed.find(tensor->name);
      const auto follower = followers.find(tensor->name);
      std::vector<float> numbers;
      if (changed != record_.changed.end()) {
        numbers = changed->second;
      } else if (follower != followers.end()) {
        ASSIGN_OR_RETURN(numbers, numbers_of(follower->second));
      } else if (type_of(*tensor) == *tensor->type) {
        RETURN_IF_ERROR(writer_->append(tensor->data));
        forget_pages(tensor->data);
        continue;
      } else {
        for (size_t i = 0; i < tensor->data.size() / sizeof(F16); ++i) {
          F16 half;
          std::memcpy(&half, tensor->data.data() + i * sizeof half, sizeof half);
          numbers.push_back(to_float(half));
        }
      }
      RETURN_IF_ERROR(append_numbers(numbers, type_of(*tensor)));
      forget_pages(tensor->data);
    }
    return ok();
  }
  // A matrix that takes a norm's factors.
  struct Follower {
    graph::WeightId weight = graph::kNone;
    FactorPlace place;
  };
  std::map<std::string_view, Follower> find_followers() const {  // by tensor
    std::map<std::string_view, Follower> found;
    for (const ProductInput& input : selection_.inputs)
      for (const graph::WeightId id : input.followers)
        found.emplace(model_.graph.weights[id].parts[0].tensor, Follower{id, input.place});
    return found;
  }
  StatusOr<std::vector<float>> numbers_of(const Follower& follower) const {
    const graph::Weight& weight = model_.graph.weights[follower.weight];
    std::vector<float> numbers(static_cast<size_t>(weight.n * weight.k));
    RETURN_IF_ERROR(read_values(weight, checkpoint_, 0, numbers));
    ASSIGN_OR_RETURN(const std::vector<float> factors,
                     factors_of_norm(follower.place, model_.graph, checkpoint_, record_.changed));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] *= factors[i % factors.size()];
    return numbers;
  }
  Status append_numbers(const std::vector<float>& numbers, DType type) {
    if (type == DType::kF32) return writer_->append(std::as_bytes(std::span(numbers)));
    std::vector<uint16_t> rounded;
    for (const float x : numbers)
      rounded.push_back(type == DType::kF16 ? to_f16(x).bits : to_bf16(x).bits);
    return writer_->append(std::as_bytes(std::span(rounded)));
  }

  const QuantizeOptions& options_;
  const models::Model& model_;
  const io::Checkpoint& checkpoint_;
  NewDirectory& output_;
  ThreadPool& pool_;
  RecordFile file_;
  Selection selection_;
  std::vector<const io::StoredTensor*> others_;
  std::optional<io::SafetensorsWriter> writer_;
  QuantizeRecord record_;
  int64_t num_int8_ = 0;
  int64_t numbers_since_kept_ = 0;
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
    return invalid_argument("smoothing: search_scales is set too; choose one");
  if (options.smoothing && !(*options.smoothing >= 0 && *options.smoothing <= 1))
    return invalid_argument("smoothing: {} is not in [0, 1]", *options.smoothing);
  if (!(options.damping > 0) || options.damping > 1)
    return invalid_argument("damping: {} is not in (0, 1]", options.damping);
  if (options.sequential && (!options.error_feedback || options.takes_factors()))
    return invalid_argument("sequential: requires error feedback without column factors");
  if (options.one_scale && (options.error_feedback || options.format.bits != 8))
    return invalid_argument("one_scale: requires 8 bits without error feedback");
  if (options.sequential && !options.use_rounded)
    return internal_error("sequential calibration without a model to follow");
  if ((options.more_bits || !options.int8_modules.empty()) &&
      options.head_format() == options.format)
    return invalid_argument("int8_modules: all matrices become {}; leave it out",
                            kernels::text_of(options.format));
  return ok();
}

}  // namespace

StatusOr<QuantizeReport> quantize_checkpoint(const QuantizeOptions& wanted, ThreadPool& pool) {
  QuantizeOptions options = wanted;
  std::error_code error;
  if (std::filesystem::equivalent(options.model_dir, options.output_dir, error))
    return invalid_argument("output_dir: {} is also model_dir; name another directory",
                            options.output_dir.string());
  ASSIGN_OR_RETURN(models::Model model, models::read_model(options.model_dir));
  RETURN_IF_ERROR(models::check_storable(model));
  RETURN_IF_ERROR(models::leave_text_part(model));
  RETURN_IF_ERROR(models::refuse_encoder_decoder(
      model, "convert_checkpoint --use_weight_only and nereid serve --weights round its weights"));
  RETURN_IF_ERROR(check_options(options, model));
  if (options.more_bits) options.int8_tensors = tensors_with_more_bits(model.graph);
  ASSIGN_OR_RETURN(const io::Checkpoint checkpoint,
                   models::open_checkpoint(model, options.model_dir));
  RETURN_IF_ERROR(
      models::check_tensors(model.graph, checkpoint, model.traits, models::ignores_of(model)));
  ASSIGN_OR_RETURN(NewDirectory output,
                   NewDirectory::resume(options.output_dir, is_quantized_file));
  QuantizeReport report;
  Quantizer quantizer(options, model, checkpoint, output, pool);
  RETURN_IF_ERROR(quantizer.write(report));
  RETURN_IF_ERROR(copy_tokenizer(options.model_dir, output.path()));
  RETURN_IF_ERROR(
      write_file_atomic(output.path() / "config.json", pretty_json(quantizer.config())));
  quantizer.remove_record();
  RETURN_IF_ERROR(output.finish());
  return report;
}

}  // namespace nereid::convert
