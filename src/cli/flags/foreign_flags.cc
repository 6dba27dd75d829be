#include "cli/flags/foreign_flags.h"

#include <algorithm>

namespace nereid::cli {
namespace {

constexpr ForeignFlag kForeignFlags[] = {
    {"--model -m --model-path --model-id", "other servers",
     "the model is the first argument: nereid serve DIR"},
    {"--tensor-parallel-size -tp --tp-size --num-shard --sharded --tensor-split -ts --split-mode "
     "-sm",
     "vLLM, SGLang, TGI and llama.cpp", "nereid's are --tp and --devices"},
    {"--pipeline-parallel-size -pp --pp-size", "vLLM and SGLang", "nereid's is --pp"},
    {"--enable-expert-parallel --expert-parallel-size --ep-size", "vLLM and SGLang",
     "nereid's is --ep"},
    {"--data-parallel-size -dp --dp-size --dp --nnodes --node-rank --dist-init-addr "
     "--nccl-init-addr --distributed-executor-backend --enable-dp-attention --master-addr --rpc",
     "vLLM, SGLang and llama.cpp", "the ranks of a model are in one process, on --devices"},
    {"--gpu-memory-utilization --mem-fraction-static --cuda-memory-fraction",
     "vLLM, SGLang and TGI",
     "nereid's are --memory (bytes for everything) and --kv-cache-fraction (share of the memory "
     "free after the weights)"},
    {"--dtype --quantization -q --quantize", "vLLM, SGLang and TGI",
     "nereid's is --weights; a checkpoint that is quantised stays as it is"},
    {"--kv-cache-dtype --cache-type-k -ctk --cache-type-v -ctv", "vLLM, SGLang and llama.cpp",
     "nereid's is --kv-cache-type"},
    {"--num-gpu-blocks-override --max-total-num-tokens", "vLLM and SGLang",
     "nereid's is --kv-cache-tokens"},
    {"--max-num-seqs --max-running-requests --parallel -np --max-batch-total-tokens "
     "--cuda-graph-max-bs",
     "vLLM, SGLang, llama.cpp and TGI", "nereid's is --max-batch-size"},
    {"--max-num-batched-tokens --chunked-prefill-size --max-prefill-tokens --ubatch-size -ub "
     "--batch-size -b --max-batch-prefill-tokens",
     "vLLM, SGLang, llama.cpp and TGI", "nereid's is --max-num-tokens"},
    {"--context-length --ctx-size -c --max-total-tokens --max-input-length --max-input-tokens "
     "--num-ctx",
     "SGLang, llama.cpp and TGI", "nereid's is --max-seq-len"},
    {"--predict --n-predict -n", "llama.cpp",
     "requests set max_tokens; the server has no limit of its own"},
    {"--n-gpu-layers -ngl --gpu-layers --main-gpu -mg", "llama.cpp",
     "nereid's is --device: cuda:0 has the whole model on a GPU, cpu none of it"},
    {"--base-gpu-id", "SGLang", "nereid's is --device, as in cuda:1"},
    {"--override-tensor -ot --cpu-moe -cmoe --n-cpu-moe -ncmoe --no-kv-offload -nkvo", "llama.cpp",
     "a model is on one device as a whole, named by --device"},
    {"-t --threads-batch -tb --threads-http", "llama.cpp",
     "nereid's are --threads, for prompts too, and --http-thread-count"},
    {"--alias -a --model-alias", "llama.cpp", "nereid's is --model-name"},
    {"--hostname", "TGI", "nereid's is --host"},
    {"-p", "TGI", "nereid's is --port"},
    {"--tokenizer-path --tokenizer-name", "SGLang and TGI", "nereid's is --tokenizer"},
    {"--hf-repo -hf -hfr --hf-file -hff --model-url -mu --download-dir --revision --code-revision "
     "--tokenizer-revision --hf-token -hft --huggingface-hub-cache",
     "other servers",
     "nereid's way is the model itself: nereid serve hf://ORG/NAME[@REVISION][:FILE.gguf]"},
    {"--trust-remote-code", "vLLM, SGLang and TGI", "nereid runs no code of a model: leave it out"},
    {"--enable-prefix-caching --no-enable-prefix-caching --disable-radix-cache --cache-reuse",
     "vLLM, SGLang and llama.cpp", "prefixes are reused; --no-kv-cache-reuse turns that off"},
    {"--enable-chunked-prefill --no-enable-chunked-prefill", "vLLM",
     "prompts are computed in chunks; --no-chunked-context turns that off"},
    {"--disable-overlap-schedule --async-scheduling --no-async-scheduling", "vLLM and SGLang",
     "steps overlap the host's work; --no-overlap turns that off"},
    {"--scheduling-policy --schedule-policy --schedule-conservativeness", "vLLM and SGLang",
     "nereid's is --scheduler-policy"},
    {"--enforce-eager --disable-cuda-graph --flash-attn -fa --mlock --no-mmap --numa "
     "--cont-batching -cb --jinja --no-webui --no-warmup --disable-log-requests "
     "--disable-log-stats --enable-log-requests --log-requests --embedding --embeddings "
     "--reranking --is-embedding --task --runner --enable-auto-tool-choice --enable-reasoning "
     "--enable-metrics --metrics --slots --props --attention-backend --sampling-backend "
     "--grammar-backend --guided-decoding-backend --enable-torch-compile --compilation-config "
     "--load-format --tokenizer-mode --disable-custom-kernels --env --usage-stats",
     "vLLM, SGLang, llama.cpp and TGI", "there is nothing to turn on, off or choose: leave it out"},
    {"--temp --temperature --top-k --top-p --min-p --repeat-penalty --seed -s --random-seed",
     "llama.cpp, vLLM and SGLang",
     "requests set it; the model's defaults: --generation-config auto"},
    {"--override-generation-config", "vLLM",
     "requests set it; the model's defaults: --generation-config auto"},
    {"--hf-overrides --json-model-override-args --rope-scaling --rope-theta --rope-freq-base "
     "--rope-freq-scale --rope-factor --yarn-orig-ctx",
     "vLLM, SGLang, llama.cpp and TGI", "the model's config.json has it"},
    {"--swap-space --cpu-offload-gb", "vLLM",
     "nereid's is --host-cache, for blocks of the KV cache"},
    {"--block-size --page-size", "vLLM and SGLang", "nereid's is --tokens-per-block"},
    {"--speculative-model --model-draft -md --speculative-draft-model-path",
     "vLLM, llama.cpp and SGLang", "nereid's are --draft-model and --speculation"},
    {"--speculative-config -sc --speculative-algorithm", "vLLM and SGLang",
     "nereid's is --speculation"},
    {"--num-speculative-tokens --draft-max --draft --speculative-num-steps --speculate",
     "vLLM, llama.cpp, SGLang and TGI", "nereid's is --max-draft-len"},
    {"--lora-modules --lora-paths --lora-adapters --lora-scaled", "vLLM, SGLang, TGI and llama.cpp",
     "nereid's is --lora NAME=DIR"},
    {"--max-loras --max-cpu-loras --max-loras-per-batch", "vLLM and SGLang",
     "any number of adapters is loaded; --max-lora-rank bounds their size"},
    {"--limit-mm-per-prompt --mmproj --mm-processor-kwargs", "vLLM and llama.cpp",
     "nereid takes texts only"},
    {"--max-concurrent-requests --max-queued-requests", "TGI and SGLang",
     "nereid's is --max-queue-size"},
    {"--reasoning-format --reasoning-budget", "llama.cpp",
     "nereid's is --reasoning-parser; requests set thinking_token_budget"},
    {"--uvicorn-log-level --log-verbosity -lv --verbose -v --log-level-http",
     "vLLM, SGLang and llama.cpp", "nereid's is --log-level"},
    {"--log-file", "llama.cpp", "nereid writes its log to stderr"},
    {"--timeout -to", "llama.cpp",
     "clients that stall are cut off by themselves; --exit-timeout-secs is for the end"},
    {"--ssl-keyfile --ssl-key-file", "vLLM and llama.cpp", "nereid's is --tls-server-key"},
    {"--ssl-certfile --ssl-cert-file", "vLLM and llama.cpp", "nereid's is --tls-server-cert"},
    {"--ssl-ca-certs", "vLLM", "nereid's is --tls-root-cert"},
    {"--allowed-origins --cors-allow-origin", "vLLM and TGI", "nereid's is --http-cors-origin"},
    {"--chat-template-file", "llama.cpp", "nereid's is --chat-template"},
    {"--keepalive --keep-alive", "Ollama", "a model stays loaded as long as the server runs"},
};

constexpr ForeignFlag kForeignCommands[] = {
    {"run chat", "Ollama and vLLM", "nereid's are generate, for one prompt, and serve"},
    {"pull push create cp rm list ls ps show stop", "Ollama",
     "nereid keeps no library of models: give the folder or .gguf file of one to serve"},
    {"launch_server api_server server start", "other servers", "nereid's is serve"},
    {"complete run-batch", "vLLM", "nereid's is generate"},
};

const ForeignFlag* find_row(std::span<const ForeignFlag> rows, std::string_view name) {
  const auto has_name = [&](std::string_view names) {
    for (size_t at = 0; at <= names.size();) {
      const size_t end = std::min(names.find(' ', at), names.size());
      if (names.substr(at, end - at) == name) return true;
      at = end + 1;
    }
    return false;
  };
  const auto row = std::ranges::find_if(rows, has_name, &ForeignFlag::names);
  return row == rows.end() ? nullptr : &*row;
}

}  // namespace

std::span<const ForeignFlag> foreign_flags() { return kForeignFlags; }

const ForeignFlag* find_foreign_flag(std::string_view name) {
  return find_row(kForeignFlags, name);
}

const ForeignFlag* find_foreign_command(std::string_view name) {
  return find_row(kForeignCommands, name);
}

}  // namespace nereid::cli
