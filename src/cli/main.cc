// nereid: one program, a subcommand per task.
#include <sys/resource.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/progress.h"
#include "cli/commands/commands.h"
#include "cli/flags/arg_table.h"
#include "cli/flags/parse_error.h"
#include "cli/tools/tools.h"
#include "runtime/ranks/rank_worker.h"

namespace {

using nereid::cli::Tool;

int rank_worker_main(int argc, char** argv) {
  return nereid::runtime::rank_worker_main(argc, argv);
}

constexpr Tool kTools[] = {
    {nereid::runtime::kRankWorker, rank_worker_main, nullptr},
    {"convert", nereid::cli::convert_checkpoint_main,
     "turn a model into a TensorRT-LLM checkpoint, for any number of ranks"},
    {"convert_checkpoint", nereid::cli::convert_checkpoint_main, "old name of convert"},
    {"quantize", nereid::cli::quantize_main,
     "round a model's weights to int8, int4 or fp8, calibrated on a text"},
    {"hf_lora_convert", nereid::cli::hf_lora_convert_main,
     "turn a LoRA adapter of PEFT into the tensors of requests, as NumPy files"},
    {"build", nereid::cli::trtllm_build_main, "build an engine directory"},
    {"trtllm-build", nereid::cli::trtllm_build_main, "old name of build"},
    {"trtllm-refit", nereid::cli::trtllm_refit_main, "replace the weights of an engine directory"},
    {"trtllm-prune", nereid::cli::trtllm_prune_main, "copy a checkpoint without its weights"},
    {"trtllm-serve", nereid::cli::trtllm_serve_main,
     "serve a model with TensorRT-LLM's flags and YAML files"},
    {"trtllm-bench", nereid::cli::trtllm_bench_main,
     "measure throughput or latency on a dataset, with TensorRT-LLM's flags and report"},
    {"prepare_dataset", nereid::cli::prepare_dataset_main,
     "write a dataset of random requests for trtllm-bench and bench-serve"},
    {"tritonserver", nereid::cli::tritonserver_main,
     "serve a model repository; --help lists the flags, which are Triton's"},
    {"openai_frontend", nereid::cli::openai_frontend_main,
     "serve a model repository by OpenAI's API; flags of Triton's openai_frontend/main.py"},
    {"check", nereid::cli::check_main, "report all faults of a model repository or a model"},
    {"fill_template", nereid::cli::fill_template_main,
     "fill the ${placeholders} of a config.pbtxt"},
    {"launch_triton_server", nereid::cli::launch_triton_server_main,
     "start the server on a model repository, in the background"},
    {"trtllm-llmapi-launch", nereid::cli::llmapi_launch_main,
     "behind mpirun or srun: run a command in process 0, ranks of its models in the others"},
};

// The text of --help for terminals of 80 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    return nereid::cli::wrapped(CLI::Formatter::make_help(app, std::move(name), mode));
  }
};

// "/x/fill_template.py" -> "fill_template"
std::string_view base_name(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);
  if (path.ends_with(".py")) path.remove_suffix(3);
  return path;
}

const Tool* find_tool(std::string_view name) {
  name = base_name(name);
  for (const auto& tool : kTools) {
    if (name == tool.name) return &tool;
  }
  return nullptr;
}

// Whether `nereid serve` has --model-repository and serves a Triton repository.
bool serves_repository(int argc, char** argv) {
  return argc > 2 && std::string_view(argv[1]) == "serve" &&
         std::any_of(argv + 2, argv + argc, [](std::string_view word) {
           return word.starts_with("--model-repository") || word.starts_with("--model-store");
         });
}

// Runs the command named in `argv`. Throws when memory or threads are exhausted.
int run(int argc, char** argv) {
  if (const Tool* tool = find_tool(argv[0])) return tool->run(argc, argv);
  if (serves_repository(argc, argv)) return nereid::cli::tritonserver_main(argc - 1, argv + 1);
  if (argc > 1) {
    if (const Tool* tool = find_tool(argv[1])) return tool->run(argc - 1, argv + 1);
  }
  CLI::App app{
      "nereid serves large language models on CPUs and NVIDIA GPUs.\n"
      "First steps:  nereid serve models/quickstart\n"
      "              nereid serve hf://ORG/NAME\n"
      "              nereid generate models/quickstart -p \"What is machine learning?\"",
      "nereid"};
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", "nereid " NEREID_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  nereid::cli::add_serve(app, exit_code);
  nereid::cli::add_generate(app, exit_code);
  nereid::cli::add_bench(app, exit_code);
  nereid::cli::add_bench_serve(app, exit_code);
  nereid::cli::add_inspect(app, exit_code);
  nereid::cli::add_perplexity(app, exit_code);
  nereid::cli::add_options_page(app);
  nereid::cli::add_doctor(app, exit_code);
  nereid::cli::add_version(app);
  nereid::cli::add_models(app, exit_code);
  nereid::cli::add_ps(app, exit_code);
  nereid::cli::add_chat(app, exit_code);
  nereid::cli::add_worker(app, exit_code);
  for (const auto& tool : kTools)
    if (tool.help) app.add_subcommand(tool.name, tool.help);
  nereid::cli::add_shell_pages(app, kTools, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::string text = nereid::cli::unknown_words_text(app);
    if (text.empty())
      if (text = nereid::cli::variable_of_error(app, error); !text.empty())
        text += error.what() + std::string("\n");
    if (text.empty()) return app.exit(error);
    std::fprintf(stderr, "nereid: %sRun with --help for more information.\n", text.c_str());
    return error.get_exit_code();
  }
  return exit_code;
}

// A resource limit of this process, in units of `unit`.
std::string limit_text(decltype(RLIMIT_AS) resource, rlim_t unit) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return std::to_string(limit.rlim_cur / unit);
}

}  // namespace

int main(int argc, char** argv) {
  nereid::init_logging();
  nereid::allow_progress_bars();
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    nereid::log_error("out of memory; address space in MiB (ulimit -v): {}",
                      limit_text(RLIMIT_AS, 1 << 20));
  } catch (const std::system_error& error) {
    nereid::log_error("{}; address space in MiB (ulimit -v): {}, threads (ulimit -u): {}",
                      error.what(), limit_text(RLIMIT_AS, 1 << 20), limit_text(RLIMIT_NPROC, 1));
  } catch (const std::exception& error) {
    nereid::log_error("{}", error.what());
  }
  return 1;
}
