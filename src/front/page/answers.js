
// Answers of /v1/chat/completions, whole or as a stream.

// One answer of the model; `tokens` have their text, log-probability and alternatives.
function newAnswer(model) {
  return { model, content: "", reasoning: "", calls: [], tokens: [], finish: "", error: "", stats: "" };
}

const shortToken = (entry) => [entry.token, entry.logprob];

// Adds a choice of a whole answer, or a part of a streamed one.
function addChoice(answer, choice) {
  const part = choice.delta ?? choice.message ?? {};
  answer.content += part.content ?? "";
  answer.reasoning += part.reasoning_content ?? "";
  for (const [i, call] of (part.tool_calls ?? []).entries()) {
    const index = call.index ?? i;
    answer.calls[index] ??= { id: call.id ?? `call_${index}`, name: "", arguments: "" };
    answer.calls[index].name += call.function?.name ?? "";
    answer.calls[index].arguments += call.function?.arguments ?? "";
  }
  for (const token of choice.logprobs?.content ?? [])
    answer.tokens.push({ text: token.token, logprob: token.logprob, top: (token.top_logprobs ?? []).map(shortToken) });
  answer.finish = choice.finish_reason ?? answer.finish;
}

const seconds = (ms) => `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;

// Answers of one request for `num` of them; the server counts their tokens together.
function statsText(usage, times, num) {
  if (!usage) return "";
  const cached = usage.prompt_tokens_details?.cached_tokens;
  const parts = [`${usage.prompt_tokens} + ${usage.completion_tokens} tokens${num > 1 ? ` of ${num} answers` : ""}`];
  if (cached) parts[0] += ` (${cached} cached)`;
  if (times.first && times.end > times.first && usage.completion_tokens > 1)
    parts.push(`${((1000 * (usage.completion_tokens - 1)) / (times.end - times.first)).toFixed(1)} tokens/s`,
      `first after ${seconds(times.first - times.begin)}`);
  return parts.join(", ");
}

// Fills `answers`, one for each choice, by a request; `changed(answer)` is called after each part.
// The error of the server, if any, is that of all answers.
async function complete(body, answers, signal, changed) {
  const times = { begin: performance.now(), first: 0, end: 0 };
  let usage = null;
  const add = (object) => {
    if (object.error) throw new ServerError(0, errorText(object, "The server ended the answer."));
    for (const choice of object.choices ?? []) {
      if (!answers[choice.index]) continue;
      addChoice(answers[choice.index], choice);
      if (choice.delta?.content || choice.delta?.reasoning_content) times.first ||= performance.now();
      changed(answers[choice.index]);
    }
    usage = object.usage ?? usage;
  };
  try {
    const response = await request("v1/chat/completions",
      { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
    const warning = response.headers.get("Warning");
    if (warning) notice(warning);
    if (body.stream) for await (const object of events(response)) add(object);
    else add(await response.json());
  } catch (error) {
    for (const answer of answers) {
      if (error.name === "AbortError") answer.finish = "stopped";
      else answer.error = error.message;
    }
  }
  times.end = performance.now();
  for (const answer of answers) answer.stats = statsText(usage, times, answers.length);
  answers.forEach(changed);
}
