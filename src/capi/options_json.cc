// The JSON names of options: one line for each option of the public headers.
#include "capi/options_json.h"

#include <set>
#include <span>
#include <utility>

#include "capi/object_reader.h"
#include "config/engine_options.h"
#include "tensor/dtype.h"

namespace nereid::capi {
namespace {

void read_option(ObjectReader& in, std::string_view name, const config::Option& option) {
  std::visit(
      [&](const auto& to) {
        using T = std::decay_t<decltype(to)>;
        if constexpr (std::is_pointer_v<T>) {
          in.read(name, *to);
        } else if constexpr (std::is_same_v<T, config::WordField>) {
          size_t index = to.get(to.value);
          in.read_word(name, config::words_of(option), index);
          to.set(to.value, index);
        }
      },
      option.field);
}

// Reads the options whose name begins with `object` and a dot.
void read_members(ObjectReader& in, const config::Options& options, std::string_view object) {
  for (const config::Option& option : options) {
    const std::string_view name = option.name;
    if (name.starts_with(object) && name.substr(object.size()).starts_with('.'))
      read_option(in, name.substr(object.size() + 1), option);
  }
}

void read_options(ObjectReader& in, const config::Options& options) {
  std::set<std::string_view> objects;
  for (const config::Option& option : options) {
    const std::string_view name = option.name, object = name.substr(0, name.find('.'));
    if (object == name) {
      read_option(in, name, option);
      continue;
    }
    if (!objects.insert(object).second) continue;
    in.read_object(object, [&](ObjectReader& inner) { read_members(inner, options, object); });
  }
}

void read_config(ObjectReader& in, ExecutorConfig& c) {
  read_options(in, config::engine_options(c));
  in.read_objects("lora_directories", [&](ObjectReader& inner) {
    LoraDirectory& directory = c.lora_directories.emplace_back();
    inner.read("task_id", directory.task_id);
    inner.read("path", directory.path);
  });
}

void read_sampling(ObjectReader& in, SamplingConfig& s) {
  in.read("beam_width", s.beam_width);
  in.read("num_return_sequences", s.num_return_sequences);
  in.read("best_of", s.best_of);
  in.read("top_k", s.top_k);
  in.read("top_p", s.top_p);
  in.read("top_p_min", s.top_p_min);
  in.read("top_p_decay", s.top_p_decay);
  in.read("top_p_reset_id", s.top_p_reset_id);
  in.read("min_p", s.min_p);
  in.read("temperature", s.temperature);
  in.read("seed", s.seed);
  in.read("min_tokens", s.min_tokens);
  in.read("repetition_penalty", s.repetition_penalty);
  in.read("presence_penalty", s.presence_penalty);
  in.read("frequency_penalty", s.frequency_penalty);
  in.read("prompt_ignore_length", s.prompt_ignore_length);
  in.read("no_repeat_ngram_size", s.no_repeat_ngram_size);
  in.read_enum<SamplingOrder>("order",
                              {{"temperature_first", SamplingOrder::kTemperatureFirst},
                               {"temperature_last", SamplingOrder::kTemperatureLast}},
                              s.order);
  in.read("length_penalty", s.length_penalty);
  in.read("early_stopping", s.early_stopping);
  in.read("beam_search_diversity_rate", s.beam_search_diversity_rate);
}

void read_output(ObjectReader& in, OutputConfig& o) {
  in.read("exclude_input_from_output", o.exclude_input_from_output);
  in.read("return_log_probs", o.return_log_probs);
  in.read("num_top_log_probs", o.num_top_log_probs);
  in.read_enum<LogProbsMode>("log_probs_mode",
                             {{"processed", LogProbsMode::kProcessed}, {"raw", LogProbsMode::kRaw}},
                             o.log_probs_mode);
  in.read("return_context_logits", o.return_context_logits);
  in.read("return_generation_logits", o.return_generation_logits);
}

void read_retention(ObjectReader& in, KvCacheRetentionConfig& c) {
  in.read_objects("token_ranges", [&](ObjectReader& inner) {
    auto& range = c.token_ranges.emplace_back();
    inner.read("token_start", range.token_start);
    inner.read("token_end", range.token_end);
    inner.read("priority", range.priority);
    inner.read("duration", range.duration);
  });
  in.read("decode_priority", c.decode_priority);
  in.read("decode_duration", c.decode_duration);
}

// The table's values are numbers in JSON; the engine has bf16 bits.
void read_prompt_table(ObjectReader& in, PromptTable& t) {
  std::vector<float> values;
  in.read("values", values);
  for (const float value : values) t.values.push_back(to_bf16(value).bits);
  in.read("width", t.width);
  in.read("extra_ids", t.extra_ids);
}

// Patches are numbers in JSON, too.
void read_picture(ObjectReader& in, Picture& p) {
  std::vector<float> patches;
  in.read("patches", patches);
  for (const float value : patches) p.patches.push_back(to_bf16(value).bits);
  in.read("first_token", p.first_token);
  in.read("num_tokens", p.num_tokens);
  in.read("frames", p.frames);
  in.read("height", p.height);
  in.read("width", p.width);
  in.read("tile_rows", p.tile_rows);
  in.read("tile_columns", p.tile_columns);
  in.read("cut_rows", p.cut_rows);
  in.read("cut_columns", p.cut_columns);
}

void read_request(ObjectReader& in, Request& r) {
  in.read("max_tokens", r.max_tokens);
  in.read("streaming", r.streaming);
  in.read_object("sampling", [&](ObjectReader& inner) { read_sampling(inner, r.sampling); });
  in.read_object("output", [&](ObjectReader& inner) { read_output(inner, r.output); });
  in.read("end_ids", r.end_ids);
  in.read("stop_words", r.stop_words);
  in.read("stop_strings", r.stop_strings);
  in.read("bad_words", r.bad_words);
  in.read_object("prompt_table",
                 [&](ObjectReader& inner) { read_prompt_table(inner, r.prompt_table.emplace()); });
  in.read_objects("pictures",
                  [&](ObjectReader& inner) { read_picture(inner, r.pictures.emplace_back()); });
  in.read("draft_token_ids", r.draft_token_ids);
  in.read("draft_logits", r.draft_logits);
  in.read("draft_acceptance_threshold", r.draft_acceptance_threshold);
  in.read_object("lookahead", [&](ObjectReader& inner) {
    read_members(inner, config::lookahead_options(r.lookahead.emplace()), "lookahead");
  });
  in.read_object("lora", [&](ObjectReader& inner) {
    LoraConfig& lora = r.lora.emplace();
    inner.read("task_id", lora.task_id);
    inner.read("folder", lora.folder);
    inner.read("root", lora.root);
    inner.read("weights", lora.weights);
    inner.read("columns", lora.columns);
    inner.read("config", lora.config);
  });
  in.read_object("guided_decoding", [&](ObjectReader& inner) {
    GuidedDecoding& guided = r.guided_decoding.emplace();
    inner.read_enum<GuideType>("type",
                               {{"json", GuideType::kJson},
                                {"json_schema", GuideType::kJsonSchema},
                                {"regex", GuideType::kRegex},
                                {"ebnf_grammar", GuideType::kEbnfGrammar},
                                {"structural_tag", GuideType::kStructuralTag}},
                               guided.type);
    inner.read("guide", guided.guide);
  });
  in.read_object("reasoning", [&](ObjectReader& inner) {
    ReasoningConfig& reasoning = r.reasoning.emplace();
    inner.read("open", reasoning.open);
    inner.read("close", reasoning.close);
    inner.read("begun", reasoning.begun);
    inner.read("max_tokens", reasoning.max_tokens);
  });
  in.read("embedding_bias", r.embedding_bias);
  in.read("logit_bias", r.logit_bias);
  in.read("return_all_generated_tokens", r.return_all_generated_tokens);
  in.read("priority", r.priority);
  in.read("allotted_time", r.allotted_time);
  in.read("client_id", r.client_id);
  in.read("tenant", r.tenant);
  in.read_object("kv_cache_retention", [&](ObjectReader& inner) {
    read_retention(inner, r.kv_cache_retention.emplace());
  });
  in.read("cache_salt", r.cache_salt);
}

const char* name_of(KvCacheEvent::Kind kind) {
  switch (kind) {
    case KvCacheEvent::Kind::kCreated:
      return "created";
    case KvCacheEvent::Kind::kStored:
      return "stored";
    case KvCacheEvent::Kind::kRemoved:
      return "removed";
    case KvCacheEvent::Kind::kUpdated:
      return "updated";
  }
  return "created";
}

}  // namespace

StatusOr<ExecutorConfig> parse_config(std::string_view text) {
  ASSIGN_OR_RETURN(const json::value document, parse_json(text));
  ExecutorConfig config;
  ObjectReader reader(document, "");
  if (document.is_object()) read_config(reader, config);
  RETURN_IF_ERROR(reader.done());
  return config;
}

StatusOr<Request> parse_request(std::string_view text) {
  ASSIGN_OR_RETURN(const json::value document, parse_json(text));
  Request request;
  ObjectReader reader(document, "");
  if (document.is_object()) read_request(reader, request);
  RETURN_IF_ERROR(reader.done());
  return request;
}

namespace {

json::object adapters_json(const AdapterStats& s) {
  return {{"num_places", s.num_places}, {"num_places_used", s.num_places_used},
          {"num_pages", s.num_pages},   {"num_pages_used", s.num_pages_used},
          {"num_held", s.num_held},     {"bytes", s.bytes},
          {"max_bytes", s.max_bytes},   {"num_hits", s.num_hits},
          {"num_misses", s.num_misses}, {"num_evictions", s.num_evictions},
          {"num_loads", s.num_loads}};
}

json::object drafts_json(const DraftStats& s) {
  return {{"num_drafts", s.num_drafts},
          {"num_accepted", s.num_accepted},
          {"tests_by_accepted", json::value_from(s.tests_by_accepted)}};
}

}  // namespace

std::string to_json(const ExecutorStats& s) {
  json::array groups;
  for (const KvGroupStats& group : std::span(s.kv_groups).first(s.num_kv_groups))
    groups.push_back({{"window", group.window},
                      {"blocks_total", group.blocks_total},
                      {"blocks_free", group.blocks_free},
                      {"blocks_held_most", group.blocks_held_most},
                      {"host_blocks_total", group.host_blocks_total},
                      {"host_blocks_free", group.host_blocks_free}});
  json::object module_figures;
  for (const ModuleFigure& f : std::span(s.module_figures).first(s.num_module_figures))
    module_figures[f.name] = f.value;
  const json::object object = {{"num_active", s.num_active},
                               {"num_waiting", s.num_waiting},
                               {"kv_blocks_total", s.kv_blocks_total},
                               {"kv_blocks_free", s.kv_blocks_free},
                               {"kv_tokens_per_block", s.kv_tokens_per_block},
                               {"kv_host_blocks_total", s.kv_host_blocks_total},
                               {"kv_host_blocks_free", s.kv_host_blocks_free},
                               {"kv_blocks_reused", s.kv_blocks_reused},
                               {"kv_blocks_missed", s.kv_blocks_missed},
                               {"kv_blocks_allocated", s.kv_blocks_allocated},
                               {"kv_blocks_allocated_new", s.kv_blocks_allocated_new},
                               {"kv_blocks_offloaded", s.kv_blocks_offloaded},
                               {"kv_blocks_onboarded", s.kv_blocks_onboarded},
                               {"num_steps", s.num_steps},
                               {"num_preemptions", s.num_preemptions},
                               {"prompt_tokens", s.prompt_tokens},
                               {"generated_tokens", s.generated_tokens},
                               {"num_drafts", s.num_drafts},
                               {"num_accepted_drafts", s.num_accepted_drafts},
                               {"request_drafts", drafts_json(s.request_drafts)},
                               {"proposer_drafts", drafts_json(s.proposer_drafts)},
                               {"proposer", s.proposer},
                               {"num_finished", s.num_finished},
                               {"num_cancelled", s.num_cancelled},
                               {"num_timed_out", s.num_timed_out},
                               {"num_failed", s.num_failed},
                               {"num_numeric_failures", s.num_numeric_failures},
                               {"device_is_healthy", s.device_is_healthy},
                               {"last_step_context_tokens", s.last_step_context_tokens},
                               {"last_step_generation_tokens", s.last_step_generation_tokens},
                               {"last_step_context_requests", s.last_step_context_requests},
                               {"last_step_generation_requests", s.last_step_generation_requests},
                               {"last_step_seconds", s.last_step_seconds},
                               {"max_batch_size", s.max_batch_size},
                               {"adapters", adapters_json(s.adapters)},
                               {"kv_groups", std::move(groups)},
                               {"module_figures", std::move(module_figures)}};
  return json::serialize(object);
}

std::string to_json(const KvCacheEvent& e) {
  json::object object = {{"event_id", e.event_id}, {"kind", name_of(e.kind)}};
  if (e.kind == KvCacheEvent::Kind::kCreated)
    object["num_blocks_per_level"] = json::value_from(e.num_blocks_per_level);
  if (e.kind != KvCacheEvent::Kind::kCreated)
    object["block_hashes"] = json::value_from(e.block_hashes);
  if (e.kind == KvCacheEvent::Kind::kStored) {
    object["parent_hash"] = e.parent_hash ? json::value(*e.parent_hash) : json::value(nullptr);
    object["tokens"] = json::value_from(e.tokens);
  }
  if (e.kind == KvCacheEvent::Kind::kStored || e.kind == KvCacheEvent::Kind::kUpdated) {
    object["level"] = e.level;
    object["priority"] = e.priority;
  }
  if (e.group > 0) object["group"] = e.group;
  if (e.window > 0) object["window"] = e.window;
  return json::serialize(object);
}

}  // namespace nereid::capi
