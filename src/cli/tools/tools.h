// Commands with the names and flags of the tools that they replace. They parse their own arguments
// by these tools' rules; argv[0] is the name for messages.
#pragma once

namespace nereid::cli {

// A command that parses its arguments itself, called by the program's own name (a link) or as
// the first word of `nereid`.
struct Tool {
  const char* name;
  int (*run)(int argc, char** argv);
  const char* help;  // null: for the program itself, not listed
};

// The server with Triton's name and flags; 0 after a stop in time, else 1.
int tritonserver_main(int argc, char** argv);

// The server with the name and flags of Triton's OpenAI front end.
int openai_frontend_main(int argc, char** argv);

// nereid check REPO: prints all faults of a model repository; 1 if there is one.
int check_main(int argc, char** argv);

// fill_template [-i] FILE name:value,name:value ...: fills the ${name} of a config.pbtxt.
int fill_template_main(int argc, char** argv);

// Starts `tritonserver` in the background, on all ranks, with the command line for a repository.
int launch_triton_server_main(int argc, char** argv);

// trtllm-llmapi-launch COMMAND: under mpirun or srun, process 0 becomes the command, and the others
// run ranks of its models.
int llmapi_launch_main(int argc, char** argv);

// Converts a Hugging Face directory to a checkpoint in the TensorRT-LLM layout.
int convert_checkpoint_main(int argc, char** argv);

// Converts a Hugging Face directory to one with rounded weights, calibrated on a text.
int quantize_main(int argc, char** argv);

// Converts a LoRA adapter of PEFT to the tensors of requests.
int hf_lora_convert_main(int argc, char** argv);

// Builds an engine directory from a checkpoint directory.
int trtllm_build_main(int argc, char** argv);

// Replaces the weights of an engine directory; its plan stays.
int trtllm_refit_main(int argc, char** argv);

// Copies a checkpoint directory without its weights.
int trtllm_prune_main(int argc, char** argv);

// Measures throughput or latency of a model on a dataset, with TensorRT-LLM's flags and report.
int trtllm_bench_main(int argc, char** argv);

// Makes random requests for trtllm-bench.
int prepare_dataset_main(int argc, char** argv);

// Serves a model over HTTP with TensorRT-LLM's flags.
int trtllm_serve_main(int argc, char** argv);

}  // namespace nereid::cli
