// Commands that keep the names and flags of the tools they replace. They parse their own arguments,
// since those follow other rules than ours, and are called with argv[0] = the name shown in
// messages.
#pragma once

namespace nereid::cli {

// The server under Triton's name and flags; 0 after a stop in time, 1 otherwise.
int tritonserver_main(int argc, char** argv);

// The server under the name and flags of Triton's OpenAI front end.
int openai_frontend_main(int argc, char** argv);

// nereid check REPO: prints every problem of a model repository; 1 when there is one.
int check_main(int argc, char** argv);

// fill_template [-i] FILE name:value,name:value ...: fills the ${name} of a config.pbtxt.
int fill_template_main(int argc, char** argv);

// Starts `tritonserver` in the background with the command line that a model repository needs.
int launch_triton_server_main(int argc, char** argv);

// A Hugging Face directory to a checkpoint in the TensorRT-LLM layout.
int convert_checkpoint_main(int argc, char** argv);

// A Hugging Face directory to one with rounded weights, calibrated on a text.
int quantize_main(int argc, char** argv);

// A LoRA adapter of PEFT to the tensors of requests.
int hf_lora_convert_main(int argc, char** argv);

// A checkpoint directory to an engine directory.
int trtllm_build_main(int argc, char** argv);

// New weights for an engine directory, its plan untouched.
int trtllm_refit_main(int argc, char** argv);

// A checkpoint directory without its weights.
int trtllm_prune_main(int argc, char** argv);

// Throughput or latency of a model on a dataset, with TensorRT-LLM's flags and report.
int trtllm_bench_main(int argc, char** argv);

// Random requests for it.
int prepare_dataset_main(int argc, char** argv);

// A model over HTTP with TensorRT-LLM's flags.
int trtllm_serve_main(int argc, char** argv);

}  // namespace nereid::cli
