/* The C API as a C11 program sees it: errors, streams, many at once, cancel, statistics. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nereid/nereid.h"

#define EXPECT(condition)                                                       \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

static const int32_t kPrompt[] = {10, 20, 30, 40, 50};

static void expect_ok(nereid_error* error) {
  if (error) fprintf(stderr, "%s\n", nereid_error_message(error));
  EXPECT(error == NULL);
}

static void expect_refused(nereid_error* error, nereid_code code, const char* text) {
  EXPECT(error != NULL);
  EXPECT(nereid_error_code(error) == code);
  if (!strstr(nereid_error_message(error), text))
    fprintf(stderr, "'%s' lacks '%s'\n", nereid_error_message(error), text);
  EXPECT(strstr(nereid_error_message(error), text));
  nereid_error_free(error);
}

static nereid_request request(const char* options) {
  nereid_request r = {kPrompt, sizeof kPrompt / sizeof kPrompt[0], options};
  return r;
}

/* Takes all responses of a request; returns the number of its tokens, which go to `tokens`. */
static size_t run(nereid_executor* executor, uint64_t id, int32_t* tokens, size_t room,
                  nereid_finish_reason* reason) {
  size_t count = 0;
  for (bool final = false; !final;) {
    nereid_responses* responses = NULL;
    expect_ok(nereid_await_request(executor, id, 60000, &responses));
    EXPECT(nereid_responses_size(responses) > 0);
    for (size_t i = 0; i < nereid_responses_size(responses); ++i) {
      nereid_response response;
      nereid_output output;
      EXPECT(nereid_get_response(responses, i, &response));
      EXPECT(response.code == NEREID_OK && response.error == NULL);
      EXPECT(response.request_id == id && response.num_outputs == 1);
      EXPECT(nereid_get_output(responses, i, 0, &output));
      EXPECT(!nereid_get_output(responses, i, 1, &output));
      EXPECT(count + output.num_token_ids <= room);
      for (size_t t = 0; t < output.num_token_ids; ++t) tokens[count++] = output.token_ids[t];
      final = response.is_final;
      *reason = output.finish_reason;
    }
    EXPECT(!nereid_get_response(responses, nereid_responses_size(responses), NULL));
    nereid_responses_free(responses);
  }
  return count;
}

static void test_errors(nereid_executor* executor, const char* model_dir) {
  nereid_executor* none = NULL;
  nereid_request r;
  expect_refused(nereid_executor_create(model_dir, "{\"max_batch_size\": -1}", &none),
                 NEREID_INVALID_ARGUMENT, "max_batch_size: -1");
  expect_refused(nereid_executor_create(model_dir, "{\"batch\": 1}", &none),
                 NEREID_INVALID_ARGUMENT, "batch: no such field");
  expect_refused(nereid_executor_create(NULL, NULL, &none), NEREID_INVALID_ARGUMENT, "model_dir");
  EXPECT(none == NULL);
  r = request("{\"max_tokens\": 4");
  expect_refused(nereid_enqueue(executor, &r, NULL), NEREID_INVALID_ARGUMENT, "line 1");
  r = request("{\"max_tokens\": 4, \"sampling\": {\"top_p\": 2}}");
  expect_refused(nereid_enqueue(executor, &r, NULL), NEREID_INVALID_ARGUMENT, "top_p: 2");
  r = request(NULL);
  expect_refused(nereid_enqueue(executor, &r, NULL), NEREID_INVALID_ARGUMENT, "options_json");
  EXPECT(nereid_error_code(NULL) == NEREID_OK);
  nereid_error_free(NULL);
}

static void test_generation(nereid_executor* executor) {
  int32_t whole[16], streamed[16];
  uint64_t id = 0;
  nereid_finish_reason reason = NEREID_NOT_FINISHED;
  nereid_request r = request("{\"max_tokens\": 16}");
  expect_ok(nereid_enqueue(executor, &r, &id));
  EXPECT(run(executor, id, whole, 16, &reason) == 16);
  EXPECT(reason == NEREID_FINISHED_BY_LENGTH);
  r = request("{\"max_tokens\": 16, \"streaming\": true, \"client_id\": 5}");
  expect_ok(nereid_enqueue(executor, &r, &id));
  EXPECT(run(executor, id, streamed, 16, &reason) == 16);
  EXPECT(memcmp(whole, streamed, sizeof whole) == 0);
  /* Its final response is gone. */
  nereid_responses* responses = NULL;
  nereid_response response;
  expect_ok(nereid_await_request(executor, id, -1, &responses));
  EXPECT(nereid_get_response(responses, 0, &response));
  EXPECT(response.code == NEREID_INVALID_ARGUMENT && strstr(response.error, "nothing to await"));
  nereid_responses_free(responses);
}

static void test_many(nereid_executor* executor) {
  const nereid_request requests[3] = {
      request("{\"max_tokens\": 2, \"output\": {\"return_log_probs\": true, "
              "\"num_top_log_probs\": 3}}"),
      request("{\"max_tokens\": 3}"), request("{\"max_tokens\": 4}")};
  uint64_t ids[3];
  expect_ok(nereid_enqueue_many(executor, requests, 3, ids));
  for (int finals = 0; finals < 3;) {
    nereid_responses* responses = NULL;
    expect_ok(nereid_await(executor, 60000, &responses));
    for (size_t i = 0; i < nereid_responses_size(responses); ++i, ++finals) {
      nereid_response response;
      nereid_output output;
      nereid_token_log_prob top[3];
      EXPECT(nereid_get_response(responses, i, &response) && response.is_final);
      EXPECT(nereid_get_output(responses, i, 0, &output));
      if (response.request_id == ids[0]) {
        EXPECT(output.num_log_probs == 2 && output.has_cum_log_prob);
        EXPECT(nereid_get_top_log_probs(responses, i, 0, 1, top, 3) == 3);
        EXPECT(top[0].token == output.token_ids[1]);
        EXPECT(response.seconds_to_first_token > 0);
      }
    }
    nereid_responses_free(responses);
  }
  EXPECT(nereid_num_responses_ready(executor, 0) == 0);
}

/* A single cancel may come when the request has ended by itself; how many did. */
static int test_cancel(nereid_executor* executor) {
  for (int num_late = 0; num_late < 20; ++num_late) {
    int32_t tokens[1000];
    uint64_t id = 0;
    nereid_finish_reason reason = NEREID_NOT_FINISHED;
    nereid_request r = request("{\"max_tokens\": 1000}");
    expect_ok(nereid_enqueue(executor, &r, &id));
    nereid_cancel(executor, id);
    const size_t count = run(executor, id, tokens, 1000, &reason);
    if (reason != NEREID_WAS_CANCELLED) continue;
    EXPECT(count == 0);
    return num_late;
  }
  EXPECT(!"cancelled");
  return 0;
}

int main(int argc, char** argv) {
  nereid_executor* executor = NULL;
  int32_t ends[8];
  char* text;
  if (argc != 2) return 2;
  expect_ok(nereid_executor_create(
      argv[1], "{\"num_threads\": 1, \"kv_cache\": {\"max_tokens\": 2048}}", &executor));
  EXPECT(nereid_vocab_size(executor) == 4096);
  EXPECT(nereid_embedding_width(executor) == 256);
  EXPECT(nereid_max_sequence_length(executor) > 1000);
  EXPECT(nereid_default_end_ids(executor, ends, 8) == 2);
  test_errors(executor, argv[1]);
  test_generation(executor);
  test_many(executor);
  const int num_late = test_cancel(executor);
  text = nereid_iteration_stats_json(executor);
  EXPECT(strstr(text, "\"iterLatencyMS\""));
  nereid_string_free(text);
  text = nereid_iteration_stats_json(executor);
  EXPECT(strcmp(text, "[]") == 0);
  nereid_string_free(text);
  EXPECT(nereid_can_enqueue(executor));
  nereid_shutdown(executor);
  EXPECT(!nereid_can_enqueue(executor));
  text = nereid_stats_json(executor);
  char finished[32];
  snprintf(finished, sizeof finished, "\"num_finished\":%d,", 5 + num_late);
  EXPECT(strstr(text, finished) && strstr(text, "\"num_cancelled\":1"));
  nereid_string_free(text);
  nereid_executor_free(executor);
  puts("ok");
  return 0;
}
