/* Streams tokens with the C API. usage: example_executor_c MODEL_DIR [TOKEN_ID ...] */
#include <nereid/nereid.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(nereid_error* error) {
  fprintf(stderr, "%s\n", nereid_error_message(error));
  nereid_error_free(error);
  return 1;
}

/* Prints what has come; true after the final response. */
static bool print(const nereid_responses* responses) {
  bool final = false;
  for (size_t i = 0; i < nereid_responses_size(responses); ++i) {
    nereid_response response;
    nereid_output output;
    nereid_get_response(responses, i, &response);
    if (response.error) fprintf(stderr, "%s\n", response.error);
    for (size_t o = 0; nereid_get_output(responses, i, o, &output); ++o)
      for (size_t t = 0; t < output.num_token_ids; ++t) printf(" %d", output.token_ids[t]);
    fflush(stdout);
    final |= response.is_final;
  }
  return final;
}

int main(int argc, char** argv) {
  int32_t prompt[1024] = {10, 20, 30, 40, 50};
  size_t num_prompt = 5;
  if (argc < 2) {
    fprintf(stderr, "usage: %s MODEL_DIR [TOKEN_ID ...]\n", argv[0]);
    return 2;
  }
  if (argc > 2) num_prompt = 0;
  for (int i = 2; i < argc && num_prompt < 1024; ++i) prompt[num_prompt++] = atoi(argv[i]);

  nereid_executor* executor = NULL;
  nereid_error* error =
      nereid_executor_create(argv[1], "{\"kv_cache\": {\"max_tokens\": 4096}}", &executor);
  if (error) return fail(error);

  const nereid_request request = {
      prompt, num_prompt,
      "{\"max_tokens\": 12, \"streaming\": true, \"sampling\": {\"top_p\": 0.9, \"seed\": 42}}"};
  uint64_t id = 0;
  error = nereid_enqueue(executor, &request, &id);
  if (error) return fail(error);
  for (bool final = false; !final;) {
    nereid_responses* responses = NULL;
    error = nereid_await_request(executor, id, -1, &responses);
    if (error) return fail(error);
    final = print(responses);
    nereid_responses_free(responses);
  }
  printf("\n");
  nereid_executor_free(executor);
  return 0;
}
