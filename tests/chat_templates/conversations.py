"""Generated conversations: what chat templates are rendered with, well formed and not."""
import copy

TEXTS = [
    "Hello, how are you?", "  leading and trailing  ", "\n\nnewlines\n", "", " ", "\u3000ideographic\u3000", "\u00a0no-break\u00a0", "tab\there",
    "<think>\nfirst this\nthen that\n</think>\n\nThe answer.", "<think>never closed", "closed only</think> rest", "<|im_end|>\n<|im_start|>system",
    "{{ 7 * 7 }} {% if x %} {# no #}", "<b>\"quoted\" & 'single'</b>", "back\\slash and \\n", "caf\u00e9 na\u00efve \u00dc\u00f1\u00ed", "\u4f60\u597d\uff0c\u4e16\u754c",
    "\U0001F600\U0001F468\u200D\U0001F469\u200D\U0001F467 family", "e\u0301 combining", "\u0645\u0631\u062d\u0628\u0627 right to left", "line\r\nfeeds\rof all\x0bkinds\x0c\u2028end",
    "a\u200bzero\ufeffwidth\u00ad", "[INST] inner [/INST]", "<tool_response>\nx\n</tool_response>", "/no_think what is 1+1?", "/think /system_override Be short.",
    "100% of {} and {0} and %s", "'single' only", "\"double\" only", "both ' and \"", "control \x01\x1f\x7f\x85 bytes", "one.two.three", "don't-stop re_do", "12345",
    "\u0661\u0662", "UPPER", "lower", "Stra\u00dfe \ufb01ne \u0130stanbul \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2", "\u01c6 \u0149 \u1f80",
    "```json\n{\"a\": 1}\n```", "word " * 40, "x\n    indented\n\n  more", "\\u0041 & \\x41", "</s><s>", "\U000e0001\ue000\u0378 odd",
]
NAMES = ["get_weather", "search", "f", "caf\u00e9_finder", "code_interpreter", "brave_search", "send \"mail\""]
SCALARS = [0, 1, -1, 42, 3.5, -0.0, 1e20, 1e-7, 0.1, 1e16, 123456789.125, True, False, None, "text", "caf\u00e9 \u2028 \"q\"", "", 2**53, -2**53]


def pick_text(rng):
    return " ".join(rng.choice(TEXTS) for _ in range(2)) if rng.random() < 0.1 else rng.choice(TEXTS)


def value(rng, depth=0):
    kind = rng.random()
    if depth > 2 or kind < 0.6:
        return rng.choice(SCALARS)
    if kind < 0.8:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(["a", "b", "c d", "\u00e9", "items", "1"]): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def arguments(rng):
    if rng.random() < 0.25:
        return rng.choice(['{"city": "Paris"}', "", "not json", '{"a": [1, 2], "b": "\u00e9"}'])
    return {rng.choice(["city", "unit", "n", "query", "flag"]): rng.choice([pick_text(rng), value(rng)]) for _ in range(rng.randrange(4))}


def tool_call(rng):
    function = {"name": rng.choice(NAMES), "arguments": arguments(rng)}
    if rng.random() < 0.15:
        return function
    call = {"type": "function", "function": function}
    if rng.random() < 0.9:
        call = {"id": rng.choice(["abcdefghi", "call_1", "123456789", "chatcmpl-tool-0"]), **call}
    return call


def parts(rng):
    out = []
    for _ in range(rng.randrange(1, 4)):
        kind = rng.random()
        if kind < 0.7:
            out.append({"type": "text", "text": pick_text(rng)})
        elif kind < 0.9:
            out.append({"type": "image"})
        else:
            out.append({"type": "image_url", "image_url": {"url": "data:,"}})
    return out


def message(rng, role, tidy):
    out = {"role": role}
    if role == "assistant" and rng.random() < 0.3:
        out["tool_calls"] = [tool_call(rng) for _ in range(1 if tidy else rng.choice([1, 1, 2, 3]))]
    odd = 0 if tidy else rng.random()
    if odd < 0.75:
        out["content"] = pick_text(rng)
    elif odd < 0.87:
        out["content"] = parts(rng)
    elif odd < 0.93:
        out["content"] = None
    elif odd < 0.96:
        out["content"] = value(rng)
    if role == "assistant" and rng.random() < 0.2:
        out[rng.choice(["reasoning_content", "thinking"])] = rng.choice([pick_text(rng), None])
    if role in ("tool", "ipython"):
        if rng.random() < 0.8:
            out["tool_call_id"] = rng.choice(["abcdefghi", "call_1", "123456789"])
        if rng.random() < 0.5:
            out["name"] = rng.choice(NAMES)
        if not tidy and rng.random() < 0.2:
            out["content"] = value(rng)
    if rng.random() < 0.05:
        out["name"] = rng.choice(["Bob", "\u00c4nne", ""])
    if rng.random() < 0.03:
        out["tools"] = rng.choice(["[]", None])
    return out


def roles(rng):
    if rng.random() < 0.1:
        return [rng.choice(["system", "user", "assistant", "tool", "developer", "ipython", "critic"]) for _ in range(rng.randrange(1, 14))]
    out = ["system"] if rng.random() < 0.5 else (["developer"] if rng.random() < 0.1 else [])
    for _ in range(rng.randrange(1, 5)):
        out.append("user")
        if rng.random() < 0.8:
            out.append("assistant")
            if rng.random() < 0.3:
                out += ["tool"] * rng.choice([1, 1, 2]) + ["assistant"]
    return out


def schema(rng, depth=0):
    kind = rng.choice(["string", "integer", "number", "boolean", "array", "object", ["string", "null"], "enum", "anyOf", "oneOf"])
    out = {}
    if kind == "enum":
        out = {"type": "string", "enum": rng.sample(["red", "gr\u00fcn", "a \"b\"", "x"], 2)}
    elif kind in ("anyOf", "oneOf"):
        out = {kind: [{"type": "string", "description": "s"}, {"type": "integer", "default": 3}]}
    elif kind == "array":
        out = {"type": "array", "items": schema(rng, depth + 1) if depth < 2 else {"type": "string"}}
    elif kind == "object" and depth < 2:
        out = {"type": "object", "properties": {n: schema(rng, depth + 1) for n in rng.sample(["x", "y", "z"], rng.randrange(3))}}
        if rng.random() < 0.5:
            out["additionalProperties"] = {"type": "number"}
    else:
        out = {"type": kind}
    if rng.random() < 0.7:
        out["description"] = pick_text(rng)
    if rng.random() < 0.2:
        out["default"] = rng.choice(["a", 1, 2.5, None, True])
    if rng.random() < 0.1:
        out["nullable"] = True
    return out


def tool(rng):
    names = rng.sample(["city", "unit", "days", "query", "Flag"], rng.randrange(4))
    parameters = {"type": "object", "properties": {n: schema(rng) for n in names}}
    if rng.random() < 0.8:
        parameters["required"] = [n for n in names if rng.random() < 0.6]
    function = {"name": rng.choice(NAMES), "description": pick_text(rng), "parameters": parameters}
    if rng.random() < 0.1:
        function["return"] = {"type": "string"}
    return {"type": "function", "function": function}


def context(rng):
    """The variables of one rendering. Half of them are tidy: text contents only, nothing missing."""
    tidy = rng.random() < 0.5
    out = {"messages": [message(rng, role, tidy) for role in roles(rng)], "add_generation_prompt": rng.random() < 0.6}
    out["tools"] = [tool(rng) for _ in range(rng.randrange(1, 4))] if rng.random() < 0.5 else None
    if rng.random() < 0.05:
        del out["tools"]
    out["documents"] = None
    if rng.random() < 0.3:
        out["documents"] = [{"title": pick_text(rng), "text": pick_text(rng)} for _ in range(rng.randrange(3))]
    if tidy or rng.random() < 0.9:
        out["bos_token"], out["eos_token"] = "<s>", "</s>"
    optional = {
        "enable_thinking": rng.random() < 0.5, "thinking": rng.random() < 0.5, "date_string": "12 Mar 2024", "reasoning_effort": "high",
        "model_identity": "Someone in a test.", "tools_in_user_message": rng.random() < 0.5, "builtin_tools": ["code_interpreter", "brave_search", "python"],
        "controls": rng.choice([None, {"length": "long", "citations": True}, {}]), "citation_mode": "accurate", "skip_think": rng.random() < 0.5,
        "add_vision_id": True, "thinking_budget": rng.choice([0, 512, 5000]), "sep_token": "<sep>", "pad_token": "<pad>",
    }
    for name, chosen in optional.items():
        if rng.random() < 0.15:
            out[name] = copy.deepcopy(chosen)
    if rng.random() < 0.05:
        out["custom_tools"] = [tool(rng)]
    return out
