#include "cli/tools/trtllm_serve.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/nearest.h"
#include "cli/commands/serve.h"
#include "cli/flags/missing_path.h"
#include "cli/flags/yaml_file.h"
#include "cli/tools/tools.h"
#include "hub/model_name.h"

namespace nereid::cli {
namespace {

const ArgTable kServeTable{"trtllm-serve", kServeFlags, "MODEL"};

// The names in the table, without dashes.
const std::set<std::string>& serve_option_names() {
  static const std::set<std::string> names = [] {
    std::set<std::string> out;
    for (const ArgFlag& flag : kServeFlags)
      for (const std::string& name : config::split(flag.names, ','))
        if (name.starts_with("--")) out.insert(name.substr(2));
    return out;
  }();
  return names;
}

// A leaf as it would be on a command line.
std::string word_of(const json::value& value) {
  if (const auto* text = value.if_string()) return std::string(*text);
  if (const auto* array = value.if_array()) {
    std::string joined;
    for (const json::value& item : *array) joined += (joined.empty() ? "" : ",") + word_of(item);
    return joined;
  }
  if (value.is_double()) return fmt::format("{}", value.get_double());
  return json::serialize(value);
}

Status add_yaml_words(const json::value& value, const std::string& path, const std::string& where,
                      std::vector<std::string>& words) {
  const bool is_known = serve_option_names().contains(path);
  if (const auto* object = value.if_object(); object && !is_known) {
    // An object without entries has no effect, so an unknown name there is no error.
    for (const auto& [key, entry] : *object) {
      RETURN_IF_ERROR(add_yaml_words(
          entry, path.empty() ? std::string(key) : fmt::format("{}.{}", path, key), where, words));
    }
    return ok();
  }
  if (!is_known || path == "config" || path == "extra_llm_api_options") {
    return invalid_argument("{}: unknown option '{}'.{}", where, path.substr(0, 80),
                            did_you_mean(path.substr(0, 80), serve_option_names()));
  }
  if (value.is_null()) return ok();
  words.push_back(fmt::format("--{}={}", path, word_of(value)));
  return ok();
}

// Removes --set PATH=VALUE from `arguments`.
StatusOr<std::vector<std::string>> take_set_words(std::vector<std::string>& arguments) {
  std::vector<std::string> rest, out;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string setting;
    if (arguments[i] == "--set") {
      if (i + 1 == arguments.size())
        return invalid_argument("argument --set: expected one argument");
      setting = arguments[++i];
    } else if (arguments[i].starts_with("--set=")) {
      setting = arguments[i].substr(6);
    } else {
      rest.push_back(arguments[i]);
      continue;
    }
    const size_t equals = setting.find('=');
    if (equals == setting.npos)
      return invalid_argument("argument --set: '{}' is not PATH=VALUE", setting.substr(0, 80));
    ASSIGN_OR_RETURN(const json::value value, parse_yaml(setting.substr(equals + 1)));
    RETURN_IF_ERROR(add_yaml_words(value, setting.substr(0, equals), "--set", out));
  }
  arguments = std::move(rest);
  return out;
}

// The window of a list; the runtime has one size for all layers.
StatusOr<std::string> window_of(const std::string& list) {
  const std::vector<std::string> windows = absl::StrSplit(list, ',');
  if (std::ranges::all_of(windows, [&](const auto& window) { return window == windows[0]; }))
    return windows[0];
  return unsupported(
      "kv_cache_config.max_attention_window: '{}' is not supported yet; allowed: one value",
      list.substr(0, 80));
}

// TensorRT-LLM's names of formats that are named otherwise here.
constexpr std::pair<const char*, const char*> kToolFormats[] = {
    {"qwen3", "hermes"},
    {"deepseek_v31", "deepseek_v3"},
    {"glm4", "glm45"},
    {"glm47", "glm45"},
};
std::string tool_format_of(const std::string& name) {
  for (const auto& [theirs, ours] : kToolFormats)
    if (name == theirs) return ours;
  return name;
}

// InvalidArgument: more ranks than this machine has devices for.
Status check_gpus_per_node(const Args& args) {
  if (!args.given("--gpus_per_node")) return ok();
  const int64_t num_gpus = args.integer("--gpus_per_node");
  const int64_t tp = args.integer("--tensor_parallel_size");
  const int64_t pp = args.integer("--pipeline_parallel_size");
  if (num_gpus >= 1 && tp <= num_gpus && pp <= num_gpus / std::max<int64_t>(tp, 1)) return ok();
  return invalid_argument(
      "gpus_per_node: {} is not allowed with tp_size {} and pp_size {}; ranks run on one machine, "
      "so "
      "at least their product is",
      num_gpus, tp, pp);
}

StatusOr<std::vector<std::string>> serve_words(const Args& args) {
  RETURN_IF_ERROR(check_gpus_per_node(args));
  std::vector<std::string> words = {args.words()[0], "--metrics-port=-1", "--grpc-port=-1",
                                    "--any-model-name"};
  const std::string& host = args.text("--host");
  words.push_back("--host=" + (host == "localhost" ? "127.0.0.1" : host));
  for (const ArgFlag& flag : kServeFlags) {
    const std::string_view names = flag.names;
    const std::string& value = args.text(names.substr(0, names.find(',')));
    if (*flag.passed_as && !value.empty())
      words.push_back(fmt::format("{}={}", flag.passed_as, value));
  }
  const std::string& reasoning = args.text("--reasoning_parser");
  words.push_back("--reasoning-parser=" + (reasoning == "deepseek-r1" ? "deepseek_r1" : reasoning));
  words.push_back("--tool-call-parser=" + tool_format_of(args.text("--tool_parser")));
  if (args.text("--generation-config") == "auto") words.emplace_back("--generation-config=auto");
  words.push_back("--log-level=" + log_level_of(args.text("--log_level")));
  words.push_back("--scheduler-policy=" +
                  absl::AsciiStrToLower(args.text("--scheduler_config.capacity_scheduler_policy")));
  words.push_back("--chunking-policy=" +
                  absl::AsciiStrToLower(args.text("--scheduler_config.context_chunking_policy")));
  if (const std::string& type = args.text("--speculative_config.decoding_type"); !type.empty())
    words.push_back("--speculation=" + (type == "Draft_Target" ? "draft_model"
                                        : type == "Eagle3"     ? "eagle"
                                                               : absl::AsciiStrToLower(type)));
  if (args.text("--speculative_config.is_public_pool") == "true")
    words.emplace_back("--ngram-pool-size=262144");
  if (args.text("--speculative_config.use_dynamic_tree") == "true")
    words.push_back("--eagle-tree-top-k=" +
                    args.text("--speculative_config.dynamic_tree_max_topK"));
  if (args.text("--kv_cache_config.enable_block_reuse") == "false")
    words.emplace_back("--no-kv-cache-reuse");
  if (args.is_on("--no_ui")) words.emplace_back("--no-ui");
  if (args.text("--disable_overlap_scheduler") == "true") words.emplace_back("--no-overlap");
  if (args.text("--load_format") == "dummy") words.emplace_back("--random-weights");
  if (args.text("--enable_lora") == "true") words.emplace_back("--enable-lora");
  const std::string& windows = args.text("--kv_cache_config.max_attention_window");
  if (!windows.empty()) {
    ASSIGN_OR_RETURN(const std::string window, window_of(windows));
    words.push_back("--attention-window=" + window);
  }
  return words;
}

// "serve" may be omitted; the other subcommands are not supported.
Status take_subcommand(std::vector<std::string>& arguments) {
  if (arguments.empty()) return ok();
  for (const char* other :
       {"disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve", "embeddings", "grpc"}) {
    if (arguments[0] == other)
      return unsupported("subcommand '{}' is not supported yet; allowed: serve", other);
  }
  if (arguments[0] == "serve") arguments.erase(arguments.begin());
  return ok();
}

}  // namespace

StatusOr<std::vector<std::string>> words_of_yaml(const json::value& document,
                                                 const std::string& where) {
  std::vector<std::string> words;
  if (document.is_null()) return words;
  if (!document.is_object()) return invalid_argument("{}: is not a mapping of options", where);
  RETURN_IF_ERROR(add_yaml_words(document, "", where, words));
  return words;
}

StatusOr<ServePlan> plan_trtllm_serve(const std::vector<std::string>& given) {
  std::vector<std::string> arguments = given;
  RETURN_IF_ERROR(take_subcommand(arguments));
  ASSIGN_OR_RETURN(const std::vector<std::string> set, take_set_words(arguments));
  ASSIGN_OR_RETURN(const Args flags, Args::parse(kServeTable, arguments));
  if (flags.wants_help()) return ServePlan{.wants_help = true};
  std::vector<std::string> all;
  if (const std::string& file = flags.text("--config"); !file.empty()) {
    ASSIGN_OR_RETURN(const json::value document, read_yaml_file(file));
    ASSIGN_OR_RETURN(all, words_of_yaml(document, file));
    // Checked alone, so that the error of a bad value names the file.
    std::vector<std::string> alone = all;
    alone.emplace_back("model");
    if (const Status bad = Args::parse(kServeTable, alone).status(); !bad.ok())
      return annotate(bad, file);
  }
  // --set has precedence, but must stand before "--", which ends flags.
  arguments.insert(std::find(arguments.begin(), arguments.end(), "--"), set.begin(), set.end());
  all.insert(all.end(), arguments.begin(), arguments.end());
  ASSIGN_OR_RETURN(const Args args, Args::parse(kServeTable, all));
  const std::string& model = args.words()[0];
  if (!hub::is_hub_address(model)) RETURN_IF_ERROR(check_exists("MODEL", model));
  ServePlan plan{.ignored = args.ignored(), .host = args.text("--host")};
  ASSIGN_OR_RETURN(plan.words, serve_words(args));
  return plan;
}

int trtllm_serve_main(int argc, char** argv) {
  auto plan = plan_trtllm_serve({argv + std::min(argc, 1), argv + argc});
  if (!plan.ok()) {
    fmt::print(stderr, "trtllm-serve: error: {}\n", message(plan.status()));
    return absl::IsInvalidArgument(plan.status()) ? 2 : 1;
  }
  if (plan->wants_help) {
    fmt::print("{}", help_text(kServeTable));
    return 0;
  }
  if (!plan->ignored.empty())
    log_warn("these options have no effect here: {}", fmt::join(plan->ignored, " "));
  const char* no_store = std::getenv("TRTLLM_RESPONSES_API_DISABLE_STORE");
  if (no_store != nullptr && *no_store != '\0')
    plan->words.emplace_back("--response-store-bytes=0");
  // Log lines of the original's web server, for which scripts wait.
  fmt::print(stderr, "INFO:     Started server process [{}]\n", ::getpid());
  fmt::print(stderr, "INFO:     Waiting for application startup.\n");
  return serve_main(plan->words, [&plan](const std::string& url) {
    fmt::print(stderr, "INFO:     Application startup complete.\n");
    fmt::print(stderr, "INFO:     Uvicorn running on http://{}{} (Press CTRL+C to quit)\n",
               plan->host, url.substr(url.rfind(':')));
  });
}

}  // namespace nereid::cli
