
// The settings of a conversation: a table of fields, the panel made of it, and members of requests.

const kFields = [
  { group: "Prompt", name: "system", label: "System prompt", kind: "text", rows: 3 },
  { group: "Sampling", name: "temperature", label: "Temperature", kind: "number" },
  { group: "Sampling", name: "max_tokens", label: "New tokens at most", kind: "number" },
  { group: "Sampling", name: "top_p", label: "Top-p", kind: "number" },
  { group: "Sampling", name: "top_k", label: "Top-k", kind: "number" },
  { group: "Sampling", name: "min_p", label: "Min-p", kind: "number" },
  { group: "Sampling", name: "seed", label: "Seed", kind: "number" },
  { group: "Sampling", name: "presence_penalty", label: "Presence penalty", kind: "number" },
  { group: "Sampling", name: "frequency_penalty", label: "Frequency penalty", kind: "number" },
  { group: "Sampling", name: "repetition_penalty", label: "Repetition penalty", kind: "number" },
  { group: "Sampling", name: "n", label: "Answers side by side", kind: "number" },
  { group: "Sampling", name: "stop", label: "Stop texts, one on each line", kind: "text", rows: 2 },
  { group: "Sampling", name: "beams", label: "Beam search, as many beams as answers", kind: "check" },
  { group: "Probabilities", name: "logprobs", label: "Show the tokens' probabilities", kind: "check" },
  { group: "Probabilities", name: "top_logprobs", label: "Alternatives of each token (0 to 20)", kind: "number", usual: "5" },
  { group: "Reasoning", name: "thinking", label: "Reasoning", kind: "choice",
    choices: [["", "as the model does"], ["true", "on"], ["false", "off"]] },
  { group: "Reasoning", name: "thinking_token_budget", label: "Tokens of reasoning at most", kind: "number" },
  { group: "Form of the answer", name: "form", label: "Form", kind: "choice",
    choices: [["", "any text"], ["json_object", "a JSON object"], ["json_schema", "JSON of the schema below"]] },
  { group: "Form of the answer", name: "schema", label: "JSON schema", kind: "text", rows: 5, mono: true,
    example: '{"type": "object", "properties": {"city": {"type": "string"}}}' },
  { group: "Tools", name: "tools", label: "Functions, a JSON array", kind: "text", rows: 5, mono: true,
    example: '[{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]' },
  { group: "Tools", name: "tool_choice", label: "Calls", kind: "choice",
    choices: [["", "as the model wants"], ["required", "at least one"], ["none", "none"]] },
];

class SettingError extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

function parseJson(settings, name, what) {
  try {
    return JSON.parse(settings[name] || "null");
  } catch (error) {
    throw new SettingError(name, `${what}: ${error.message}`);
  }
}

function toolsOf(settings) {
  const tools = parseJson(settings, "tools", "Functions");
  if (tools === null) return undefined;
  if (!Array.isArray(tools)) throw new SettingError("tools", "Functions: a JSON array is expected.");
  return tools.map((tool) => (tool?.function ? tool : { type: "function", function: tool }));
}

function formOf(settings) {
  if (settings.form === "json_object") return { type: "json_object" };
  if (settings.form !== "json_schema") return undefined;
  const schema = parseJson(settings, "schema", "JSON schema");
  if (schema === null) throw new SettingError("schema", "JSON schema: it is empty.");
  return { type: "json_schema", json_schema: { name: "answer", schema, strict: true } };
}

const numAnswers = (settings) => Math.max(1, Math.min(16, Number(settings.n) || 1));

// The body of a request. SettingError: a field's JSON or number is none.
function requestBody(settings, model, messages) {
  const body = { model, messages };
  for (const field of kFields) {
    const text = settings[field.name];
    if (field.kind !== "number" || field.name === "top_logprobs" || !text) continue;
    if (!Number.isFinite(Number(text))) throw new SettingError(field.name, `${field.label}: '${text}' is no number.`);
    body[field.name] = field.name === "n" ? numAnswers(settings) : Number(text);
  }
  const stop = (settings.stop ?? "").split("\n").filter((line) => line !== "");
  if (stop.length > 0) body.stop = stop;
  if (settings.thinking) body.thinking = settings.thinking === "true";
  if (settings.logprobs) {
    body.logprobs = true;
    body.top_logprobs = Number(settings.top_logprobs || 5);
  }
  body.response_format = formOf(settings);
  body.tools = toolsOf(settings);
  if (body.tools && settings.tool_choice) body.tool_choice = settings.tool_choice;
  body.stream = !settings.beams;
  if (settings.beams) body.use_beam_search = true;
  else body.stream_options = { include_usage: true };
  return body;
}

function fieldInput(field) {
  const attributes = { id: `set-${field.name}`, "aria-describedby": `fault-${field.name}`, placeholder: field.example ?? field.usual };
  if (field.kind === "text")
    return el("textarea", { ...attributes, rows: field.rows, class: field.mono ? "mono" : "", spellcheck: !field.mono ? undefined : "false" });
  if (field.kind === "choice")
    return el("select", attributes, ...field.choices.map(([value, label]) => el("option", { value }, label)));
  if (field.kind === "check") return el("input", { ...attributes, type: "checkbox" });
  return el("input", { ...attributes, inputmode: "decimal", autocomplete: "off" });
}

// The panel; `changed` is called when a field has got another value.
class SettingsPanel {
  constructor(node, changed) {
    this.inputs = new Map();
    for (const group of new Set(kFields.map((field) => field.group))) {
      const fields = kFields.filter((field) => field.group === group);
      const numbers = fields.filter((field) => field.kind === "number" && group === "Sampling");
      const others = fields.filter((field) => !numbers.includes(field));
      const make = (field) => this.fieldElement(field, changed);
      node.append(el("fieldset", {}, el("legend", {}, group),
        numbers.length > 0 ? el("div", { class: "pair" }, ...numbers.map(make)) : null, ...others.map(make)));
    }
    node.append(el("p", { class: "muted" }, "An empty field leaves the server's default."));
  }
  fieldElement(field, changed) {
    const input = fieldInput(field);
    this.inputs.set(field.name, input);
    input.addEventListener("input", () => {
      chats.current.settings[field.name] = field.kind === "check" ? input.checked : input.value;
      this.fault(null);
      changed();
    });
    const label = el("label", { for: input.id }, field.label);
    const fault = el("div", { id: `fault-${field.name}`, class: "fault" });
    return field.kind === "check" ? el("div", { class: "field check" }, input, label, fault)
      : el("div", { class: "field" }, label, input, fault);
  }
  // Shows the current conversation's values.
  show() {
    for (const [name, input] of this.inputs) {
      if (input.type === "checkbox") input.checked = Boolean(chats.current.settings[name]);
      else input.value = chats.current.settings[name] ?? "";
    }
    this.fault(null);
  }
  // Marks the field of a SettingError; null: none.
  fault(error) {
    for (const [name, input] of this.inputs) {
      const isWrong = error?.field === name;
      input.setAttribute("aria-invalid", String(isWrong));
      byId(`fault-${name}`).textContent = isWrong ? error.message : "";
      if (isWrong) input.focus();
    }
  }
}
