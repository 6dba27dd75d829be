// Requests of the tensorrt_llm model on their way through the executor.
#include "backend/tensorrtllm/model.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "backend/common/check_parameters.h"
#include "backend/executor_config/executor_config.h"
#include "base/clock.h"
#include "base/contained.h"
#include "nereid/server.h"
#include "runtime/engine_limits.h"
#include "text/decoder_prompt.h"

namespace nereid::backend {
namespace {

// The number of sequences of max_sequence_length whose keys and values the cache holds at once.
int64_t num_full_contexts(const ExecutorStats& stats, int64_t max_sequence_length) {
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (int64_t g = 0; g < stats.num_kv_groups; ++g) {
    const KvGroupStats& group = stats.kv_groups[static_cast<size_t>(g)];
    const auto blocks = [&](int64_t tokens) {
      return (tokens - 1) / stats.kv_tokens_per_block + 1;
    };
    int64_t held = blocks(max_sequence_length);
    // Both end blocks are partial.
    if (group.window > 0) held = std::min(held, blocks(group.window) + 1);
    fewest = std::min(fewest, group.blocks_total / held);
  }
  return stats.num_kv_groups == 0 ? 0 : fewest;
}

// `name`: "memory", or that of a rank. `uses`: descending.
std::string memory_line(const std::string& name, const std::vector<MemoryUse>& uses) {
  int64_t total = 0;
  for (const auto& use : uses) total += use.bytes;
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::string line = fmt::format("{} {:.1f} MiB:", name, mib(total));
  for (const auto& use : uses) {
    if (use.bytes < total / 1000) continue;  // entries below a thousandth of the total are left out
    line += fmt::format("{} {} {:.1f}", line.ends_with(':') ? "" : ",", use.what, mib(use.bytes));
  }
  return line;
}

// Memory use, of each rank where there are several, and KV capacity as lines for the log.
std::vector<std::string> memory_lines(const Executor& executor) {
  std::vector<MemoryUse> uses = executor.memory();
  std::ranges::stable_sort(uses, std::greater(), &MemoryUse::bytes);
  std::vector<std::string> lines;
  const std::vector<RankStats> ranks = executor.ranks();
  if (ranks.empty()) lines.push_back(memory_line("memory", uses));
  for (const RankStats& rank : ranks) {
    std::vector<MemoryUse> own;
    std::ranges::copy_if(uses, std::back_inserter(own),
                         [&](const MemoryUse& use) { return use.rank == rank.rank; });
    lines.push_back(memory_line(fmt::format("rank {} on {}: memory", rank.rank, rank.device), own));
  }
  const int32_t length = executor.max_sequence_length();
  lines.push_back(fmt::format("context {} tokens; the KV cache holds {} full ones", length,
                              num_full_contexts(executor.stats(), length)));
  return lines;
}

// Adds the ids that the files of the model, else of its tokenizer, force behind the first token.
Status add_forced_ids(const std::filesystem::path& model, const std::filesystem::path& tokenizer,
                      int32_t vocab_size, std::vector<TokenId>& prompt) {
  if (prompt.size() != 1) return ok();  // no decoder, or forced_bos_token_id
  ASSIGN_OR_RETURN(std::vector<int32_t> forced, text::read_forced_ids(model));
  if (forced.empty()) {
    ASSIGN_OR_RETURN(forced, text::read_forced_ids(tokenizer));
  }
  for (const int32_t id : forced)
    if (id >= vocab_size)
      return invalid_argument("{}: forced_decoder_ids: {} is not in a vocabulary of {}",
                              model.string(), id, vocab_size);
  prompt.insert(prompt.end(), forced.begin(), forced.end());
  return ok();
}

// The encoder of a model in two folders lies beside its decoder, else it is in the same folder.
Status check_encoder_path(const ModelSettings& settings, const std::filesystem::path& path) {
  for (const char* key : {"encoder_model_path", "encoder_engine_dir"}) {
    const auto encoder = settings.parameter(key);
    std::error_code error;
    if (!encoder || encoder->empty() || std::filesystem::equivalent(*encoder, path, error))
      continue;
    const auto beside = runtime::encoder_beside(path);
    if (std::filesystem::equivalent(*encoder, beside, error)) continue;
    return unsupported(
        "model '{}': parameter '{}' is {}; allowed are {}, which lies beside the decoder that "
        "gpt_model_path names, the same folder as there, and nothing",
        settings.name, key, *encoder, beside.string());
  }
  return ok();
}

}  // namespace

StatusOr<std::unique_ptr<TensorrtLlmModel>> TensorrtLlmModel::create(TRITONBACKEND_Model* model) {
  ASSIGN_OR_RETURN(ModelSettings settings, ModelSettings::read(model));
  ASSIGN_OR_RETURN(const std::filesystem::path path, model_path(settings));
  RETURN_IF_ERROR(check_encoder_path(settings, path));
  ASSIGN_OR_RETURN(ExecutorConfig config, read_executor_config(settings));
  warn_without_effect(settings, "tensorrtllm");
  if (settings.num_instances > 1 && config.num_instances <= 1)
    log_info(
        fmt::format("{}: the {} instances of instance_group share one executor; parameter "
                    "num_instances, or process_mode orchestrator, or a list of devices for each "
                    "makes several",
                    settings.name, settings.num_instances));
  RETURN_IF_ERROR(runtime::apply_engine_limits(path, config).status());
  ASSIGN_OR_RETURN(auto executor, Executor::create(path, config));
  for (const std::string& line : memory_lines(*executor)) {
    log_info(fmt::format("{}: {}", settings.name, line));
  }
  const std::filesystem::path dir = settings.parameter("tokenizer_dir").value_or(path.string());
  std::shared_ptr<const text::Tokenizer> tokenizer;
  if (text::Tokenizer::has_files(dir)) {
    ASSIGN_OR_RETURN(tokenizer, text::Tokenizer::load(dir));
  }
  ASSIGN_OR_RETURN(auto made,
                   with_executor(std::move(settings), std::move(executor), std::move(tokenizer)));
  made->context_.max_beam_width = config.max_beam_width;
  RETURN_IF_ERROR(
      add_forced_ids(path, dir, made->context_.vocab_size, made->context_.decoder_prompt));
  return made;
}

StatusOr<std::unique_ptr<TensorrtLlmModel>> TensorrtLlmModel::with_executor(
    ModelSettings settings, std::unique_ptr<Executor> executor,
    std::shared_ptr<const text::Tokenizer> tokenizer) {
  std::unique_ptr<TensorrtLlmModel> m(new TensorrtLlmModel);
  m->settings_ = std::move(settings);
  m->executor_ = std::move(executor);
  m->writer_ = std::make_unique<ResponseWriter>(m->settings_, m->executor_->vocab_size(),
                                                std::move(tokenizer));
  RETURN_IF_ERROR(m->writer_->check());
  m->context_.decoupled = m->settings_.decoupled;
  m->context_.vocab_size = m->executor_->vocab_size();
  m->context_.max_sequence_length = m->executor_->max_sequence_length();
  m->context_.encoder = m->executor_->encoder();
  m->context_.decoder_prompt = m->context_.encoder.decoder_prompt();
  m->context_.pictures = m->executor_->pictures();
  m->context_.default_end_ids = m->executor_->default_end_ids();
  m->context_.declares_embedding = m->settings_.output("embedding") != nullptr;
  if (m->context_.declares_embedding) m->context_.embedding_size = m->executor_->hidden_size();
  m->open_parameters_ = json::serialize(
      json::object{{"max_seq_len", std::to_string(m->context_.max_sequence_length)},
                   {"embedding_size", std::to_string(m->context_.embedding_size)},
                   {"num_labels", std::to_string(m->executor_->num_labels())},
                   {"num_mel_bins", std::to_string(m->context_.encoder.feature_width)},
                   {"encoder_positions", std::to_string(m->context_.encoder.max_length)},
                   {"picture_patch_width", std::to_string(m->context_.pictures.patch_width)},
                   {"picture_merge", std::to_string(m->context_.pictures.merge)},
                   {"picture_max_patches", std::to_string(m->context_.pictures.max_patches)},
                   {"max_num_sequences", std::to_string(m->executor_->stats().max_batch_size)}});
  ASSIGN_OR_RETURN(m->context_.exclude_input_default,
                   m->settings_.boolean("exclude_input_in_output", false));
  ASSIGN_OR_RETURN(const ExecutorConfig config, read_executor_config(m->settings_));
  m->max_queue_size_ = config.max_queue_size;
  m->context_.max_beam_width = std::max(config.max_beam_width, 1);
  const bool is_static = config.scheduler.capacity_policy == CapacityPolicy::kStaticBatch;
  m->context_.takes_adapters = config.enable_lora;
  m->context_.lora_load_dir = m->settings_.parameter("lora_load_dir").value_or("");
  m->context_.is_v1 = is_v1(m->settings_);
  m->context_.declares_lengths = m->settings_.output("sequence_length") != nullptr;
  for (const auto& [key, period] : {std::pair{"cancellation_check_period_ms", &m->cancel_period_},
                                    std::pair{"stats_check_period_ms", &m->stats_period_}}) {
    ASSIGN_OR_RETURN(const int64_t ms, m->settings_.integer(key, 100));
    if (ms < 1 || ms > 60000) {
      return invalid_argument("model '{}': parameter '{}' is {}, expected 1 to 60000",
                              m->settings_.name, key, ms);
    }
    *period = std::chrono::milliseconds(ms);
  }
  m->instance_metrics_ = std::make_unique<InstanceMetrics>(m->settings_.name, m->settings_.version);
  m->metrics_ = std::make_unique<ModelMetrics>(m->settings_.name, m->settings_.version, is_static,
                                               m->executor_->stats().proposer);
  m->publish({}, false);
  m->watch_ = std::thread([model = m.get()] {
    run_contained("watch for cancelled requests", [model] { model->watch(); });
  });
  return m;
}

TensorrtLlmModel::~TensorrtLlmModel() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  if (watch_.joinable()) watch_.join();
  executor_.reset();  // joins the callback thread before the members that it uses go
}

namespace {

// Bytes of a request's attention scores and encoder output, held until they are sent.
uint64_t score_bytes(const nereid::Request& request, const EncoderFacts& encoder) {
  if (!request.encoder_input) return 0;
  const EncoderInput& input = *request.encoder_input;
  const size_t positions =
      encoder.feature_width > 0
          ? input.features.size() / static_cast<size_t>(encoder.feature_width) / 2
          : input.token_ids.size();
  const size_t width =
      request.output.return_encoder_output ? static_cast<size_t>(encoder.output_width) : 0;
  return sizeof(float) * positions *
         (request.output.alignment_heads.size() * request.input_token_ids.size() + width);
}

}  // namespace

void TensorrtLlmModel::execute(std::unique_ptr<Request> request) {
  const auto refuse = [&](const Status& status) {
    Responder responder(*request);
    responder.fail(status);
  };
  const auto stopping = request->scalar<bool>("stop");
  if (!stopping.ok()) return refuse(stopping.status());
  if (stopping->value_or(false)) return stop(*request);
  StatusOr<std::vector<GenerationRequest>> generations;
  const Status read = guarded([&]() -> Status {
    generations = read_generation_requests(*request, context_);
    RETURN_IF_ERROR(generations.status());
    uint64_t logits = 0;
    for (const GenerationRequest& g : *generations)
      logits += writer_->logits_bytes(g.request) + score_bytes(g.request, context_.encoder);
    return request->hold(logits);
  });
  if (!read.ok()) return refuse(read);
  auto active = std::make_shared<Active>(std::move(request));
  for (auto& generation : *generations) {
    ActiveItem& item = active->items.emplace_back();
    item.batch_index = static_cast<int64_t>(active->items.size()) - 1;
    item.batch = static_cast<int64_t>(generations->size());
    item.generation = std::move(generation);
  }
  active->num_open = active->items.size();
  active->id = active->request->id();
  start(std::move(active));
}

namespace {

// Moves the request's fields to the executor and keeps those that responses need.
nereid::Request take_request(ActiveItem& item) {
  nereid::Request& kept = item.generation.request;
  if (!item.generation.exclude_input && !kept.streaming) item.prompt = kept.input_token_ids;
  nereid::Request out = std::move(kept);
  kept = {};
  kept.streaming = out.streaming;
  kept.return_all_generated_tokens = out.return_all_generated_tokens;
  kept.max_tokens = out.max_tokens;
  kept.sampling = out.sampling;
  kept.output = out.output;
  return out;
}

}  // namespace

void TensorrtLlmModel::start(std::shared_ptr<Active> active) {
  active->compute_start = now_ns();
  {
    std::lock_guard lock(mutex_);
    active->number = ++num_started_;
    active_.insert(active);
  }
  // All items are queued or none: responses of the first wait until the last is accepted.
  std::lock_guard guard(active->mutex);
  for (size_t i = 0; i < active->items.size(); ++i) {
    const auto id = executor_->enqueue(
        take_request(active->items[i]),
        [this, active, i](Response response) { on_response(active, i, std::move(response)); });
    if (!id.ok()) {
      const bool full = absl::IsResourceExhausted(id.status());
      abandon(active,
              full
                  ? unavailable("Maximum queue size of {} has been reached, please try again later "
                                "(Exceeds maximum queue size)",
                                max_queue_size_)
                  : id.status());
      return;
    }
    std::lock_guard lock(mutex_);
    active->executor_ids.push_back(*id);
  }
}

StatusOr<std::string> TensorrtLlmModel::view(uint32_t which) {
  switch (which) {
    case NEREID_VIEW_BATCH:
      return to_json(executor_->batch_timeline());
    case NEREID_VIEW_PREFIX_TREE:
      return to_json(executor_->prefix_trees());
    case NEREID_VIEW_PLAN:
      return to_json(executor_->plan_report());
    default:
      return invalid_argument("view: {} is none of NEREID_View, 0 to {}", which,
                              static_cast<uint32_t>(NEREID_VIEW_PLAN));
  }
}

bool TensorrtLlmModel::lends_thread() {
  constexpr size_t kMostActive = 64;
  std::lock_guard lock(mutex_);
  return active_.size() <= kMostActive;
}

void TensorrtLlmModel::abandon(const std::shared_ptr<Active>& active, const Status& status) {
  active->over = true;
  active->responder.fail(status);
  std::vector<RequestId> left;
  {
    std::lock_guard lock(mutex_);
    active_.erase(active);
    left = active->executor_ids;
  }
  for (RequestId id : left) executor_->cancel(id);
  active->request->release();
}

void TensorrtLlmModel::end(const std::shared_ptr<Active>& active) {
  active->over = true;
  {
    std::lock_guard lock(mutex_);
    active_.erase(active);
  }
  active->request->release();
}

void TensorrtLlmModel::stop(Request& request) {
  Responder responder(request);
  const std::string id = request.id();
  if (id.empty()) {
    return responder.fail(
        invalid_argument("Trying to stop a request but request ID is not provided"));
  }
  std::vector<RequestId> found;
  {
    std::lock_guard lock(mutex_);
    Active* newest = nullptr;  // the newest of several live requests with this id
    for (const auto& active : active_) {
      if (active->id != id || (newest != nullptr && active->number < newest->number)) continue;
      newest = active.get();
    }
    if (newest != nullptr) {
      newest->cancelled = true;
      found = newest->executor_ids;
    }
  }
  for (RequestId executor_id : found) executor_->cancel(executor_id);
  // Answers without outputs; stopping a request that has ended is no error.
  if (Status s = responder.send({}, true); !s.ok()) responder.fail(s);
}

void TensorrtLlmModel::fail_item(Active& active, const Response& response, bool is_last) {
  active.responder.fail(
      Status(response.status.code(),
             fmt::format("Executor failed process requestId {} due to the following error: {}",
                         response.request_id, message(response.status))),
      is_last);
}

void TensorrtLlmModel::count_tokens(ActiveItem& item, const Response& response) {
  const bool is_streamed = item.generation.request.streaming;
  if (is_streamed && !response.outputs[0].token_ids.empty()) {
    const Time at = now();
    if (item.last_token != Time{}) metrics_->next_token(seconds(at - item.last_token));
    item.last_token = at;
  }
  if (response.is_final || response.is_sequence_final) {
    for (const auto& output : response.outputs) item.num_generated += output.num_output_tokens;
  }
  if (response.is_final) metrics_->item_finished(response, item.num_generated, is_streamed);
}

void TensorrtLlmModel::on_response(const std::shared_ptr<Active>& active, size_t item_index,
                                   Response response) {
  std::lock_guard guard(active->mutex);
  ActiveItem& item = active->items[item_index];
  if (active->over || item.over) return;
  const bool item_ends = response.is_final || !response.status.ok();
  const bool is_last = item_ends && active->num_open == 1;
  if (is_last) active->request->set_times(active->compute_start, now_ns());
  if (!response.status.ok()) {
    fail_item(*active, response, is_last);
  } else {
    if (response.outputs.empty()) response.outputs.emplace_back();  // ended before its first step
    count_tokens(item, response);
    const auto outputs = writer_->write(*active->request, item, response);
    if (outputs.empty() && !item_ends) return;
    if (is_last) metrics_->finished(response, item.num_tokens_sent);
    if (Status s = active->responder.send(outputs, is_last, response_parameters(item, response));
        !s.ok()) {
      abandon(active, s);
      return;
    }
  }
  if (!item_ends) return;
  item.over = true;
  --active->num_open;
  if (is_last) end(active);
}

std::vector<std::string> TensorrtLlmModel::publish(const std::vector<IterationStats>& steps,
                                                   bool makes_lines) {
  instance_metrics_->publish(executor_->instances());
  return metrics_->publish(executor_->stats(), steps, makes_lines, executor_->ranks(),
                           executor_->expert_load());
}

void TensorrtLlmModel::watch() {
  Time next_stats = now() + stats_period_;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::min(cancel_period_, stats_period_), [&] { return closing_; })) {
    std::vector<RequestId> left;
    for (const auto& active : active_) {
      if (!active->cancelled && !active->responder.is_cancelled()) continue;
      // Repeats a cancel that came before all ids of the executor were known.
      active->cancelled = true;
      left.insert(left.end(), active->executor_ids.begin(), active->executor_ids.end());
    }
    lock.unlock();
    for (RequestId id : left) executor_->cancel(id);
    if (now() >= next_stats) {
      // Steps are taken before the snapshot, which is then at least as new as each of them.
      const auto steps = executor_->latest_iteration_stats();
      const bool is_logged = TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_VERBOSE);
      for (const auto& line : publish(steps, is_logged)) log_verbose(line);
      next_stats = now() + stats_period_;
    }
    lock.lock();
  }
}

}  // namespace nereid::backend
