/* The C API of nereid: the same executor as nereid/executor.h for programs in C and for other
 * languages' foreign function interfaces. Responses are polled; there are no callbacks.
 *
 * Every function may be called from any thread, but an object must not be used while or after it is
 * freed. Functions that can fail return NULL for success or an error that the caller frees. Text is
 * UTF-8 and ends with a zero byte. No exception leaves this library. Link with -lnereid. */
#ifndef NEREID_NEREID_H_
#define NEREID_NEREID_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEREID_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nereid_error nereid_error;
typedef struct nereid_executor nereid_executor;
typedef struct nereid_responses nereid_responses;

/* The codes of absl::StatusCode that occur here. */
typedef enum nereid_code {
  NEREID_OK = 0,
  NEREID_CANCELLED = 1,
  NEREID_INVALID_ARGUMENT = 3, /* the caller's input; the message names the field */
  NEREID_DEADLINE_EXCEEDED = 4,
  NEREID_NOT_FOUND = 5,          /* a file of the model */
  NEREID_RESOURCE_EXHAUSTED = 8, /* memory, or the queue is full */
  NEREID_UNIMPLEMENTED = 12,     /* a model or a device that this build does not run */
  NEREID_INTERNAL = 13,
  NEREID_UNAVAILABLE = 14, /* shutting down; input and output */
  NEREID_DATA_LOSS = 15    /* a damaged file */
} nereid_code;

typedef enum nereid_finish_reason {
  NEREID_NOT_FINISHED = 0,
  NEREID_FINISHED_BY_END_ID = 1,
  NEREID_FINISHED_BY_STOP = 2, /* stop words or stop strings */
  NEREID_FINISHED_BY_LENGTH = 3,
  NEREID_TIMED_OUT = 4,
  NEREID_WAS_CANCELLED = 5
} nereid_finish_reason;

NEREID_API nereid_code nereid_error_code(const nereid_error* error);    /* NULL: NEREID_OK */
NEREID_API const char* nereid_error_message(const nereid_error* error); /* valid until freed */
NEREID_API void nereid_error_free(nereid_error* error);                 /* NULL is allowed */

/* Loads a model directory. `config_json`: NULL, or an object with fields of ExecutorConfig
 * (nereid/config.h) by their names, {"max_batch_size": 8, "kv_cache": {"max_tokens": 4096}};
 * enumerations by name in lower case ("guaranteed_no_evict"). Unknown fields are refused. */
NEREID_API nereid_error* nereid_executor_create(const char* model_dir, const char* config_json,
                                                nereid_executor** executor);

/* Cancels running requests. No other call may be active. NULL is allowed. */
NEREID_API void nereid_executor_free(nereid_executor* executor);

/* One request. `options_json`: an object with fields of Request (nereid/request.h), except
 * input_token_ids, by their names; max_tokens is required:
 * {"max_tokens": 16, "streaming": true, "sampling": {"top_k": 20, "seed": 7}}. Times are in
 * milliseconds, pairs are arrays of two, a prompt_table's values are numbers, rounded to bf16. */
typedef struct nereid_request {
  const int32_t* input_token_ids;
  size_t num_input_tokens;
  const char* options_json;
} nereid_request;

/* Queues a request; `id` (may be NULL) gets its number. Errors as Executor::enqueue. */
NEREID_API nereid_error* nereid_enqueue(nereid_executor* executor, const nereid_request* request,
                                        uint64_t* id);

/* Queues all of them or none; `ids`: NULL or room for `count`. */
NEREID_API nereid_error* nereid_enqueue_many(nereid_executor* executor,
                                             const nereid_request* requests, size_t count,
                                             uint64_t* ids);

/* Ends a request at the next step; unknown or finished ones are ignored. */
NEREID_API void nereid_cancel(nereid_executor* executor, uint64_t id);

/* Waits for responses to any request and takes all that are ready. None: `timeout_ms` has passed
 * (negative: no limit), or the executor is shutting down and none can come any more. */
NEREID_API nereid_error* nereid_await(nereid_executor* executor, int64_t timeout_ms,
                                      nereid_responses** responses);

/* nereid_await() for one request. An id that has ended or does not exist gets one error response
 * at once. */
NEREID_API nereid_error* nereid_await_request(nereid_executor* executor, uint64_t id,
                                              int64_t timeout_ms, nereid_responses** responses);

/* Number of responses ready now: of one request, or of all (id 0). */
NEREID_API int64_t nereid_num_responses_ready(const nereid_executor* executor, uint64_t id);

NEREID_API size_t nereid_responses_size(const nereid_responses* responses);
NEREID_API void nereid_responses_free(nereid_responses* responses); /* NULL is allowed */

/* Pointers are valid until the list is freed. */
typedef struct nereid_response {
  uint64_t request_id;
  bool has_client_id;
  uint64_t client_id;
  nereid_code code;  /* not NEREID_OK: the request failed, there are no outputs */
  const char* error; /* NULL when NEREID_OK */
  bool is_final;     /* exactly one response of each request */
  bool is_sequence_final;
  int32_t sequence_index;
  int32_t num_input_tokens;
  size_t num_outputs;          /* one, or one for each beam, best first */
  const float* context_logits; /* [prompt, vocab], NULL unless asked for */
  size_t num_context_logits;   /* floats */
  /* On the last response of a sequence: seconds from arrival, negative when it never happened. */
  double seconds_to_first_scheduled, seconds_to_first_token, seconds_to_last_token;
  int32_t reused_blocks, missed_blocks, allocated_blocks, num_preemptions;
} nereid_response;

typedef struct nereid_output {
  const int32_t* token_ids;
  size_t num_token_ids;
  nereid_finish_reason finish_reason;
  int32_t num_output_tokens; /* generated so far */
  const float* log_probs;    /* NULL unless asked for */
  size_t num_log_probs;
  bool has_cum_log_prob;
  float cum_log_prob;
  size_t num_top_log_probs;       /* positions that have them */
  const float* generation_logits; /* [token, vocab], NULL unless asked for */
  size_t num_generation_logits;   /* floats */
} nereid_output;

typedef struct nereid_token_log_prob {
  int32_t token;
  float log_prob;
} nereid_token_log_prob;

/* False, and nothing is written, when an index is out of range. */
NEREID_API bool nereid_get_response(const nereid_responses* responses, size_t index,
                                    nereid_response* response);
NEREID_API bool nereid_get_output(const nereid_responses* responses, size_t index, size_t output,
                                  nereid_output* out);

/* The likeliest tokens at a position of an output: writes up to `room`, returns their number. */
NEREID_API size_t nereid_get_top_log_probs(const nereid_responses* responses, size_t index,
                                           size_t output, size_t position,
                                           nereid_token_log_prob* top, size_t room);

/* See Executor::drain and Executor::shutdown. */
NEREID_API void nereid_drain(nereid_executor* executor, int64_t timeout_ms);
NEREID_API void nereid_shutdown(nereid_executor* executor);
NEREID_API bool nereid_can_enqueue(const nereid_executor* executor);

/* Statistics as JSON, freed by the caller; NULL: out of memory. nereid_stats_json is a snapshot of
 * counts; the others return and empty their rings, as arrays, the oldest first. */
NEREID_API char* nereid_stats_json(const nereid_executor* executor);
NEREID_API char* nereid_iteration_stats_json(nereid_executor* executor);
NEREID_API char* nereid_request_stats_json(nereid_executor* executor);
NEREID_API char* nereid_kv_cache_events_json(nereid_executor* executor);
NEREID_API void nereid_string_free(char* text); /* NULL is allowed */

NEREID_API int32_t nereid_vocab_size(const nereid_executor* executor);
NEREID_API int32_t nereid_embedding_width(const nereid_executor* executor);
NEREID_API int32_t nereid_max_sequence_length(const nereid_executor* executor);

/* The end ids of the checkpoint's generation_config.json and config.json: writes up to `room`,
 * returns their number. */
NEREID_API size_t nereid_default_end_ids(const nereid_executor* executor, int32_t* ids,
                                         size_t room);

#ifdef __cplusplus
}
#endif

#endif /* NEREID_NEREID_H_ */
