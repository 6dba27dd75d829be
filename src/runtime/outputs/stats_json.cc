// Statistics as JSON with the names and order of TensorRT-LLM's serializer, for log scrapers.
#include <fmt/chrono.h>

#include <chrono>

#include "base/json.h"
#include "nereid/stats.h"

namespace nereid {
namespace {

std::string text_of(std::chrono::system_clock::time_point time) {
  const auto since = std::chrono::floor<std::chrono::microseconds>(time.time_since_epoch());
  const auto whole = std::chrono::floor<std::chrono::seconds>(since);
  return fmt::format("{:%m-%d-%Y %H:%M:%S}.{:06}",
                     fmt::gmtime(static_cast<std::time_t>(whole.count())), (since - whole).count());
}

// Names of upstream's enum values.
const char* name_of(RequestStage stage) {
  switch (stage) {
    case RequestStage::kQueued:
      return "QUEUED";
    case RequestStage::kContextInProgress:
      return "CONTEXT_IN_PROGRESS";
    case RequestStage::kGenerationInProgress:
      return "GENERATION_IN_PROGRESS";
    case RequestStage::kGenerationComplete:
      return "GENERATION_COMPLETE";
  }
  return "QUEUED";
}

json::object kv_cache(const IterationStats& s) {
  return {{"maxNumBlocks", s.kv_max_blocks},
          {"freeNumBlocks", s.kv_free_blocks},
          {"usedNumBlocks", s.kv_used_blocks},
          {"tokensPerBlock", s.kv_tokens_per_block},
          {"allocTotalBlocks", s.kv_alloc_total_blocks},
          {"allocNewBlocks", s.kv_alloc_new_blocks},
          {"reusedBlocks", s.kv_reused_blocks},
          {"missedBlocks", s.kv_missed_blocks},
          {"cacheHitRate", s.kv_cache_hit_rate}};
}

json::object inflight_batching(const IterationStats& s) {
  return {{"numScheduledRequests", s.num_scheduled_requests},
          {"numContextRequests", s.num_context_requests},
          {"numGenRequests", s.num_gen_requests},
          {"numPausedRequests", s.num_paused_requests},
          {"numCtxTokens", s.num_ctx_tokens},
          {"microBatchId", 0},
          {"avgNumDecodedTokensPerIter", s.avg_num_decoded_tokens_per_iter}};
}

}  // namespace

std::string to_json(const BatchTimeline& timeline) {
  constexpr const char* kKinds[] = {"queued", "prefill", "decode", "paused"};
  const auto milliseconds = [](double seconds) { return static_cast<int64_t>(1e3 * seconds); };
  json::array sequences;
  for (const BatchSequence& s : timeline.sequences) {
    json::array spans;
    for (const BatchSpan& span : s.spans)
      spans.push_back(json::array{kKinds[static_cast<size_t>(span.kind)], milliseconds(span.begin),
                                  milliseconds(span.end), span.tokens});
    sequences.push_back({{"id", s.id},
                         {"instance", s.instance},
                         {"prompt_tokens", s.prompt_tokens},
                         {"generated_tokens", s.generated_tokens},
                         {"ended", s.ended},
                         {"spans", std::move(spans)}});
  }
  return json::serialize(json::object{{"seconds", timeline.seconds},
                                      {"left_out", timeline.num_left_out},
                                      {"sequences", std::move(sequences)}});
}

std::string to_json(const std::vector<PrefixTreeOutline>& instances) {
  json::array list;
  for (const PrefixTreeOutline& tree : instances) {
    json::array runs;
    for (const CachedRun& run : tree.runs)
      runs.push_back(json::array{run.parent, run.tokens, run.blocks, run.holders,
                                 run.on_host ? "host" : "device"});
    json::value age;
    if (tree.age >= 0) age = static_cast<int64_t>(1e3 * tree.age);
    list.push_back({{"instance", tree.instance},
                    {"age_ms", std::move(age)},
                    {"tokens_per_block", tree.tokens_per_block},
                    {"blocks", tree.num_blocks},
                    {"left_out", tree.num_left_out},
                    {"runs", std::move(runs)}});
  }
  return json::serialize(json::object{{"instances", std::move(list)}});
}

std::string to_json(const PlanReport& report) {
  return json::serialize(json::object{{"text", report.text}, {"graph", report.graph}});
}

std::string to_json(const IterationStats& s) {
  const json::object object = {
      {"timestamp", text_of(s.timestamp)},
      {"iter", s.iter},
      {"iterLatencyMS", s.iter_latency_ms},
      {"newActiveRequestsQueueLatencyMS", s.new_active_requests_queue_latency_ms},
      {"numNewActiveRequests", s.num_new_active_requests},
      {"numActiveRequests", s.num_active_requests},
      {"numQueuedRequests", s.num_queued_requests},
      {"numCompletedRequests", s.num_completed_requests},
      {"maxNumActiveRequests", s.max_num_active_requests},
      {"maxBatchSizeStatic", s.max_batch_size},
      {"maxBatchSizeTunerRecommended", 0},
      {"maxBatchSizeRuntime", s.max_batch_size},
      {"maxNumTokensStatic", s.max_num_tokens},
      {"maxNumTokensTunerRecommended", 0},
      {"maxNumTokensRuntime", s.max_num_tokens},
      {"gpuMemUsage", s.gpu_mem_usage},
      {"cpuMemUsage", s.cpu_mem_usage},
      {"pinnedMemUsage", s.pinned_mem_usage},
      {"kvCacheStats", kv_cache(s)},
      {"staticBatchingStats", nullptr},
      {"inflightBatchingStats", inflight_batching(s)},
      {"specDecodingStats", nullptr}};
  return json::serialize(object);
}

std::string to_json(const RequestStatsPerIteration& s) {
  json::array requests;
  for (const RequestStats& r : s.requests)
    requests.push_back(
        json::object{{"id", r.id},
                     {"stage", name_of(r.stage)},
                     {"contextPrefillPosition", r.context_prefill_position},
                     {"numGeneratedTokens", r.num_generated_tokens},
                     {"avgNumDecodedTokensPerIter", r.avg_num_decoded_tokens_per_iter},
                     {"scheduled", r.scheduled},
                     {"paused", r.paused},
                     {"disServingStats", nullptr},
                     {"allocTotalBlocksPerRequest", r.alloc_total_blocks},
                     {"allocNewBlocksPerRequest", r.alloc_new_blocks},
                     {"reusedBlocksPerRequest", r.reused_blocks},
                     {"missedBlocksPerRequest", r.missed_blocks},
                     {"kvCacheHitRatePerRequest", r.kv_cache_hit_rate}});
  return json::serialize(json::object{{"iter", s.iter}, {"requestStats", std::move(requests)}});
}

}  // namespace nereid
