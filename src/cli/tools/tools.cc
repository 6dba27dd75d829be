#include "cli/tools/tools.h"

#include "cli/flags/arg_table.h"
#include "cli/triton/triton_flags.h"
#include "runtime/ranks/rank_worker.h"

namespace nereid::cli {
namespace {

constexpr Tool kTools[] = {
    {runtime::kRankWorker,
     [](int argc, char** argv) { return runtime::rank_worker_main(argc, argv); }, nullptr},
    {"convert", convert_checkpoint_main,
     "turn a model into a TensorRT-LLM checkpoint, for any number of ranks"},
    {"convert_checkpoint", convert_checkpoint_main, "old name of convert"},
    {"quantize", quantize_main,
     "round a model's weights to int8, int4 or fp8, calibrated on a text"},
    {"hf_lora_convert", hf_lora_convert_main,
     "turn a LoRA adapter of PEFT into the tensors of requests, as NumPy files"},
    {"build", trtllm_build_main, "build an engine directory"},
    {"trtllm-build", trtllm_build_main, "old name of build"},
    {"trtllm-refit", trtllm_refit_main, "replace the weights of an engine directory"},
    {"trtllm-prune", trtllm_prune_main, "copy a checkpoint without its weights"},
    {"trtllm-serve", trtllm_serve_main, "serve a model with TensorRT-LLM's flags and YAML files"},
    {"trtllm-bench", trtllm_bench_main,
     "measure throughput or latency on a dataset, with TensorRT-LLM's flags and report"},
    {"prepare_dataset", prepare_dataset_main,
     "write a dataset of random requests for trtllm-bench and bench-serve"},
    {"tritonserver", tritonserver_main,
     "serve a model repository; --help lists the flags, which are Triton's"},
    {"openai_frontend", openai_frontend_main,
     "serve a model repository by OpenAI's API; flags of Triton's openai_frontend/main.py"},
    {"check", check_main, "report all faults of a model repository or a model"},
    {"fill_template", fill_template_main, "fill the ${placeholders} of a config.pbtxt"},
    {"launch_triton_server", launch_triton_server_main,
     "start the server on a model repository, in the background"},
    {"trtllm-llmapi-launch", llmapi_launch_main,
     "behind mpirun or srun: run a command in process 0, ranks of its models in the others"},
};

}  // namespace

std::span<const Tool> all_tools() { return kTools; }

CommandText tool_text(const Tool& tool) {
  if (tool.run == tritonserver_main) {
    TritonOptions options;
    return command_text(tool.name, tool.help, triton_flags(options));
  }
  CommandText text;
  set_help_writer([&](const ArgTable& table) {
    text = command_text(tool.name, tool.help, options_of(table.flags), table.words);
    return std::string();
  });
  std::string name = tool.name, help = "--help";
  char* words[] = {name.data(), help.data(), nullptr};
  tool.run(2, words);
  set_help_writer(nullptr);
  return text;
}

}  // namespace nereid::cli
