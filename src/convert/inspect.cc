#include "convert/inspect.h"

#include <map>
#include <tuple>
#include <variant>

#include "convert/engine_dir.h"
#include "convert/graph_svg.h"
#include "convert/measure_kernels.h"
#include "io/engine_file.h"
#include "io/safetensors.h"
#include "models/formats/trtllm.h"

namespace nereid::convert {
namespace {

using io::kNone;

double mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string_view name_of(kernels::WeightLayout layout) {
  if (layout == kernels::WeightLayout::kFragments) return "fragments";
  return layout == kernels::WeightLayout::kPanel16 ? "panel16" : "row_major";
}

// "[n, k] panel16"; with several experts "[experts, n, k] panel16".
std::string shape_text(const io::PlanWeight& w) {
  const std::string experts = w.experts > 1 ? fmt::format("{}, ", w.experts) : "";
  return fmt::format("[{}{}, {}] {}{}", experts, w.n, w.k, name_of(w.layout),
                     w.format.is_float() ? "" : ", " + kernels::text_of(w.format));
}

std::string passes_text(const std::vector<graph::PassReport>& reports) {
  std::string text;
  for (const graph::PassReport& pass : reports)
    text += fmt::format("{:<22}{:>9.3f} ms  {:>5} nodes{}\n", pass.name, pass.seconds * 1e3,
                        pass.num_nodes, pass.ran ? "" : "  (disabled)");
  return text;
}

// A call's outputs, then its other operands and attributes by name.
class CallText {
 public:
  explicit CallText(const io::Plan& plan) : plan_(plan) {}

  template <class Op>
  std::string operator()(const Op& op) const {
    std::string outputs, rest;
    kernels::for_fields(op, [&](const auto& field, const auto& x) {
      using kernels::Role;
      constexpr Role kRole = std::remove_cvref_t<decltype(field)>::kRole;
      if constexpr (kRole != Role::kStep) {
        std::string text = operand<kRole>(field.name, x);
        if (text.empty()) return;
        std::string& list = kRole == Role::kOut ? outputs : rest;
        list += (list.empty() ? "" : ", ") + text;
      }
    });
    return fmt::format("{} <- {}", outputs, rest);
  }

 private:
  template <kernels::Role kRole, class T>
  std::string operand(std::string_view name, const T& x) const {
    using kernels::Role;
    if constexpr (std::is_same_v<T, kernels::Id>) {
      if (x == kNone) return "";
      if constexpr (kRole == Role::kIn || kRole == Role::kOut) return value(x);
      if constexpr (kRole == Role::kMatrix || kRole == Role::kVector) return weight(x);
      return fmt::format("{} {}", name, x.index);
    } else if constexpr (std::is_same_v<T, kernels::Heads>) {
      if (x.latent > 0)
        return fmt::format("{} + {} heads of {}, latent {}", x.num, x.num_kv, x.dim, x.latent);
      return fmt::format("{} + 2 * {} heads of {}", x.num, x.num_kv, x.dim);
    } else if constexpr (std::is_enum_v<T>) {
      return fmt::format("{} {}", name, names_of(x)[static_cast<size_t>(x)]);
    } else {
      return x == T{} ? "" : fmt::format("{} {}", name, x);
    }
  }
  std::string value(io::ValueId id) const {
    const io::Value& v = plan_.values[id];
    return fmt::format("{}@{}{}", v.name, v.extent == io::RowCount::kTokens ? "t" : "s", v.offset);
  }
  std::string weight(io::WeightId id) const {
    const io::PlanWeight& w = plan_.weights[id];
    return w.name + " " + shape_text(w);
  }
  const io::Plan& plan_;
};

std::string kernel_text(const io::Call& call) {
  const bool is_exchange = std::visit(
      [](const auto& op) { return kernels::kIsExchange<std::remove_cvref_t<decltype(op)>>; },
      call.op);
  return is_exchange ? "(exchange)" : call.kernel.empty() ? "(when loaded)" : call.kernel;
}

std::string plan_text(const io::Plan& plan) {
  std::string text;
  for (size_t i = 0; i < plan.calls.size(); ++i)
    text += fmt::format("{:>4} {:<14}{:<16}{}\n", i, io::name_of(plan.calls[i].op),
                        kernel_text(plan.calls[i]), std::visit(CallText(plan), plan.calls[i].op));
  return text;
}

std::string kernels_text(const io::Plan& plan) {
  std::map<std::tuple<std::string, std::string, std::string>, int> counts;
  for (const io::Call& call : plan.calls) {
    std::string shape = "-";
    std::visit(
        [&]<class Op>(const Op& op) {
          kernels::for_fields(op, [&](const auto& field, const auto& x) {
            if constexpr (std::remove_cvref_t<decltype(field)>::kRole == kernels::Role::kMatrix &&
                          Op::kRowsIndependent)
              shape = shape_text(plan.weights[x]);
          });
        },
        call.op);
    ++counts[{std::string(io::name_of(call.op)), kernel_text(call), shape}];
  }
  std::string text;
  for (const auto& [key, count] : counts)
    text += fmt::format("{:<14}{:<16}{:>4} calls  {}\n", std::get<0>(key), std::get<1>(key), count,
                        std::get<2>(key));
  return text;
}

// Product choices that differ from the library's first choice.
std::string choices_text(const kernels::AlgorithmChoices& choices) {
  if (choices.library.empty()) return "";
  std::string text = fmt::format(
      "\nproducts measured with {} on {}: {} of {} choices are its first\n", choices.library,
      choices.device, choices.products.size() - num_chosen(choices), choices.products.size());
  for (const kernels::ProductChoice& c : choices.products)
    if (!c.algorithm.empty())
      text += fmt::format("[{}, {}] {} to {}, up to {} rows: {}\n", c.n, c.k, nereid::name_of(c.x),
                          nereid::name_of(c.out), c.rows, fmt::join(c.algorithm, " "));
  return text;
}

std::string memory_text(const io::Plan& plan, const InspectOptions& options) {
  const io::ModelFacts& m = plan.model;
  const uint64_t kv_row = uint64_t{m.latent > 0 ? 1u : 2u} * m.num_layers * m.num_kv_heads *
                          m.head_dim * nereid::size_of(m.kv_dtype);
  const auto rows = [](int64_t bytes, int64_t count) {
    return static_cast<uint64_t>(bytes * count);
  };
  const uint64_t weights = plan.blob_bytes;
  const uint64_t tokens = rows(plan.arena_bytes_per_row[0], options.max_num_tokens);
  const uint64_t sampled = rows(plan.arena_bytes_per_row[1], options.max_batch_size);
  int64_t angles = 0;
  for (const io::RopeTable& rope : m.ropes)
    angles += static_cast<int64_t>(2 * rope.inverse_frequencies.size());
  const uint64_t rope = rows(angles * 4, m.max_positions);
  const uint64_t kv = kv_row * static_cast<uint64_t>(options.kv_cache_tokens);
  std::string text;
  const auto line = [&](std::string_view name, uint64_t bytes, const std::string& note) {
    text += fmt::format("{:<16}{:>10.2f} MiB  {}\n", name, mib(bytes), note);
  };
  line("weights", weights, fmt::format("{} tensors", plan.weights.size()));
  line("activations", tokens,
       fmt::format("{} tokens x {} bytes", options.max_num_tokens, plan.arena_bytes_per_row[0]));
  line("sampled rows", sampled,
       fmt::format("{} rows x {} bytes", options.max_batch_size, plan.arena_bytes_per_row[1]));
  line("rope table", rope, fmt::format("{} positions", m.max_positions));
  line("kv cache", kv, fmt::format("{} tokens x {} bytes", options.kv_cache_tokens, kv_row));
  line("total", weights + tokens + sampled + rope + kv, "");
  return text;
}

std::string about(const io::Plan& plan) {
  const io::ModelFacts& m = plan.model;
  return fmt::format("{} ({}), for {} {}\n", m.name, m.architecture, plan.device, plan.target);
}

std::string calls(const io::Plan& plan) {
  return fmt::format("\nplan (value@arena offset per row)\n{}\nkernels\n{}{}", plan_text(plan),
                     kernels_text(plan), choices_text(plan.choices));
}

std::string tail(const io::Plan& plan, const InspectOptions& options) {
  return calls(plan) + "\nmemory\n" + memory_text(plan, options);
}

Status check_sizes(const InspectOptions& o) {
  constexpr int64_t kMax = int64_t{1} << 32;
  for (const auto& [name, value] : {std::pair("max_num_tokens", o.max_num_tokens),
                                    std::pair("max_batch_size", o.max_batch_size),
                                    std::pair("kv_cache_tokens", o.kv_cache_tokens)})
    if (value < 1 || value > kMax)
      return invalid_argument("{}: {} is not in [1, {}]", name, value, kMax);
  return ok();
}

// Opening engines verifies small ones only.
Status verify_rank_engines(const models::Model& model, const std::filesystem::path& dir) {
  for (int32_t rank = 0; model.in_engines && rank < model.ranks.num_files(); ++rank) {
    ASSIGN_OR_RETURN(
        const io::EngineFile file,
        io::EngineFile::open(dir / models::rank_file_name(rank, true), io::Verify::kPlan));
    RETURN_IF_ERROR(file.verify_weights());
  }
  return ok();
}

// One plan: of a decoder or an encoder.
struct Report {
  std::string text;
  bool has_encoder = false;  // the plan is a decoder's with an encoder
};

StatusOr<Report> report(const std::filesystem::path& path, const kernels::Registry& registry,
                        const DeviceInfo& device, const InspectOptions& options) {
  if (const std::filesystem::path engine = given_engine(path); !engine.empty()) {
    ASSIGN_OR_RETURN(const io::EngineFile file, io::EngineFile::open(engine, io::Verify::kPlan));
    return Report{
        about(file.plan()) + "engine " + engine.string() + "\nkey " + file.build_key() + "\n" +
            (file.checkpoint().empty() ? ""
             : file.is_of_rank()       ? fmt::format("weights of rank {}\n", file.rank())
                                       : "no weights; they come from " + file.checkpoint() + "\n") +
            tail(file.plan(), options),
        file.plan().model.encoder_positions > 0};
  }
  ASSIGN_OR_RETURN(const Compiled compiled, compile_model(path, registry, device, options.compile));
  return Report{
      fmt::format("{}\ntraits\n{}\ngraph as built\n{}\npasses\n{}{}", about(compiled.plan),
                  models::print(compiled.model.traits), graph::print(compiled.model.graph),
                  passes_text(compiled.passes), tail(compiled.plan, options)),
      compiled.plan.model.encoder_positions > 0};
}

}  // namespace

StatusOr<std::string> inspect(const std::filesystem::path& path, const kernels::Registry& registry,
                              const DeviceInfo& device, const InspectOptions& options) {
  RETURN_IF_ERROR(check_sizes(options));
  ASSIGN_OR_RETURN(const std::string what, describe_model(path));
  InspectOptions own = options;
  own.compile.half = models::Half::kDecoder;
  ASSIGN_OR_RETURN(const Report decoder, report(path, registry, device, own));
  if (!decoder.has_encoder) return what + decoder.text;
  own.compile.half = models::Half::kEncoder;
  own.compile.head = {};
  ASSIGN_OR_RETURN(const Report encoder, report(encoder_path(path), registry, device, own));
  return fmt::format("{}decoder: {}\nencoder: {}", what, decoder.text, encoder.text);
}

PlanReport plan_report(const std::vector<io::Plan>& plans) {
  PlanReport report;
  for (const io::Plan& plan : plans) {
    if (!report.text.empty()) report.text += '\n';
    report.text += about(plan) + calls(plan);
  }
  if (!plans.empty()) report.graph = graph_svg(plans[0]);
  return report;
}

StatusOr<std::string> draw_plan(const std::filesystem::path& path,
                                const kernels::Registry& registry, const DeviceInfo& device,
                                const CompileOptions& options) {
  if (const std::filesystem::path engine = given_engine(path); !engine.empty()) {
    ASSIGN_OR_RETURN(const io::EngineFile file, io::EngineFile::open(engine, io::Verify::kPlan));
    return graph_svg(file.plan());
  }
  ASSIGN_OR_RETURN(const Compiled compiled, compile_model(path, registry, device, options));
  return graph_svg(compiled.plan);
}

namespace {

Status verify_half(const std::filesystem::path& given, models::Half half) {
  std::filesystem::path path = given;
  if (const std::filesystem::path engine = given_engine(given); !engine.empty()) {
    ASSIGN_OR_RETURN(const io::EngineFile file, io::EngineFile::open(engine, io::Verify::kPlan));
    if (!file.is_of_rank()) return io::EngineFile::open(engine, io::Verify::kFull).status();
    path = file.checkpoint();
  }
  ASSIGN_OR_RETURN(const models::Model model, models::read_model(path, half));
  ASSIGN_OR_RETURN(const io::Checkpoint checkpoint, models::open_checkpoint(model, path));
  RETURN_IF_ERROR(verify_rank_engines(model, path));
  return models::check_tensors(model.graph, checkpoint, model.traits, models::ignores_of(model));
}

}  // namespace

Status verify_model(const std::filesystem::path& path) {
  RETURN_IF_ERROR(verify_half(path, models::Half::kDecoder));
  ASSIGN_OR_RETURN(const io::ModelFacts facts, read_facts(path));
  if (facts.encoder_positions == 0) return ok();
  return verify_half(encoder_path(path), models::Half::kEncoder);
}

}  // namespace nereid::convert
