#include "cli/load/executor_load.h"

#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/progress.h"
#include "base/queue.h"

namespace nereid::cli {
namespace {

struct RunUnderWay {
  const Time start = now();
  std::vector<RequestRecord> records;  // each is written by its request's callback
  std::vector<Status> failures;        // each is written by its request's callback
  Queue<size_t> done;                  // indices of requests that have ended

  double since_start(Time at) const { return seconds(at - start); }
};

Request load_request(const BenchRequest& from, const ExecutorLoad& load) {
  Request request;
  request.input_token_ids = from.input_ids;
  request.max_tokens = static_cast<int32_t>(from.output_tokens);
  request.streaming = load.streaming;
  request.sampling.top_k = 1;
  request.sampling.beam_width = load.beam_width;
  if (load.end_id) request.end_ids = {*load.end_id};
  return request;
}

void take_response(RunUnderWay& run, size_t index, Response response, bool is_whole) {
  const Time at = now();
  RequestRecord& record = run.records[index];
  if (!response.status.ok()) {
    run.failures[index] = response.status;
  } else if (!response.outputs.empty()) {
    SequenceOutput& best = response.outputs[0];
    const bool is_first = record.num_responses++ == 0;
    if (is_first && !best.token_ids.empty())
      record.first_s = run.since_start(is_whole ? response.metrics.first_token : at);
    record.output_tokens = best.num_output_tokens;
    if (is_whole) record.token_ids.clear();  // each response has all tokens
    record.token_ids.insert(record.token_ids.end(), best.token_ids.begin(), best.token_ids.end());
  }
  record.end_s = run.since_start(at);
  if (response.is_final) run.done.push(index);
}

}  // namespace

StatusOr<std::vector<RequestRecord>> run_on_executor(Executor& executor,
                                                     std::span<const BenchRequest> requests,
                                                     const ExecutorLoad& load) {
  auto run = std::make_shared<RunUnderWay>();
  run->records.resize(requests.size());
  run->failures.resize(requests.size());
  const bool is_whole = !load.streaming || load.beam_width > 1;
  size_t num_sent = 0, num_done = 0;
  ProgressBar bar("requests", std::ssize(requests), ProgressUnit::kCount);
  Status failure;
  while (num_done < num_sent || (failure.ok() && num_sent < requests.size())) {
    const bool has_room =
        load.concurrency <= 0 || static_cast<int64_t>(num_sent - num_done) < load.concurrency;
    if (failure.ok() && num_sent < requests.size() && has_room) {
      const size_t index = num_sent;
      RequestRecord& record = run->records[index];
      record.input_tokens = std::ssize(requests[index].input_ids);
      record.begin_s = run->since_start(now());
      const auto id = executor.enqueue(load_request(requests[index], load),
                                       [run, index, is_whole](Response response) {
                                         take_response(*run, index, std::move(response), is_whole);
                                       });
      if (id.ok())
        ++num_sent;
      else
        failure = annotate(id.status(), fmt::format("request {}", index));
      continue;
    }
    const size_t index = *run->done.take();
    ++num_done;
    bar.add(1);
    if (failure.ok() && !run->failures[index].ok())
      failure = annotate(run->failures[index], fmt::format("request {}", index));
  }
  RETURN_IF_ERROR(failure);
  return std::move(run->records);
}

}  // namespace nereid::cli
