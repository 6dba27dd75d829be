// The table of formats. Sources: the models' published chat templates.
#include "front/output/tool_formats.h"

#include "front/output/tool_readers.h"

namespace nereid::front {
namespace {

constexpr ToolMarker marked_json(std::string_view open, std::string_view close = {}) {
  return {.open = open, .close = close, .read = read_json, .repeats = true};
}
// JSON that may also be an answer.
constexpr ToolMarker bare_json(std::string_view open) {
  return {.open = open, .read = read_json, .only_first = true, .keeps_open = true, .repeats = true};
}
// One of several opening markers of the same reader.
constexpr ToolMarker tags(std::string_view open, std::string_view close, ReadCalls read) {
  return {.open = open, .close = close, .read = read, .keeps_open = true};
}
constexpr ToolMarker dropped(std::string_view mark) { return {.open = mark}; }
constexpr ToolMarker control(ToolMarker marker) {
  marker.is_control = true;
  return marker;
}

constexpr ToolMarker kHermes[] = {marked_json("<tool_call>", "</tool_call>")};
constexpr ToolMarker kToolCalls[] = {marked_json("<tool_calls>", "</tool_calls>")};
constexpr ToolMarker kNemotron[] = {marked_json("<TOOLCALL>", "</TOOLCALL>"),
                                    marked_json("<toolcall>", "</toolcall>")};
constexpr ToolMarker kGranite[] = {control(marked_json("<|tool_call|>")),
                                   marked_json("<tool_call>", "</tool_call>")};
constexpr ToolMarker kPhi[] = {control(marked_json("<|tool_call|>", "<|/tool_call|>")),
                               marked_json("functools")};
constexpr ToolMarker kInternLm[] = {
    control(marked_json("<|action_start|><|plugin|>", "<|action_end|>")),
    control(marked_json("<|action_start|> <|plugin|>", "<|action_end|>"))};
constexpr ToolMarker kJson[] = {
    bare_json("{"),
    bare_json("["),
    {.open = "```json", .close = "```", .read = read_json, .only_first = true, .repeats = true}};
constexpr ToolMarker kLlama[] = {
    control({.open = "<|python_tag|>", .close = "<|eom_id|>", .read = read_llama, .repeats = true}),
    bare_json("{")};
constexpr ToolMarker kMistral[] = {control({.open = "[TOOL_CALLS]", .read = read_mistral})};
constexpr ToolMarker kCommand[] = {
    control({.open = "<|START_ACTION|>", .close = "<|END_ACTION|>", .read = read_command}),
    {.open = "Action: ```json", .close = "```", .read = read_command},
    {.open = "Action:\n```json", .close = "```", .read = read_command},
    dropped("<|START_RESPONSE|>"),
    dropped("<|END_RESPONSE|>"),
    dropped("<|START_TEXT|>"),
    dropped("<|END_TEXT|>")};
constexpr ToolMarker kApertus[] = {
    control({.open = "<|tools_prefix|>", .close = "<|tools_suffix|>", .read = read_by_name})};
constexpr ToolMarker kPythonic[] = {
    control({.open = "<|python_start|>", .close = "<|python_end|>", .read = read_pythonic}),
    {.open = "[", .read = read_pythonic, .only_first = true, .keeps_open = true}};
constexpr ToolMarker kOlmo[] = {
    {.open = "<function_calls>", .close = "</function_calls>", .read = read_pythonic}};
constexpr ToolMarker kQwenCoder[] = {tags("<tool_call>", "</tool_call>", read_qwen_coder),
                                     tags("<function=", "</tool_call>", read_qwen_coder)};
constexpr ToolMarker kSeed[] = {tags("<seed:tool_call>", "</seed:tool_call>", read_seed),
                                tags("<function=", "</seed:tool_call>", read_seed)};
constexpr ToolMarker kMiniMax[] = {
    tags("<minimax:tool_call>", "</minimax:tool_call>", read_minimax),
    tags("<invoke name=", "</minimax:tool_call>", read_minimax)};
constexpr ToolMarker kDeepSeek32[] = {
    control(tags("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", read_deepseek_v32)),
    control(tags("<｜DSML｜invoke name=", "</｜DSML｜function_calls>", read_deepseek_v32))};
constexpr ToolMarker kGlm[] = {tags("<tool_call>", "</tool_call>", read_glm)};
constexpr ToolMarker kNames[] = {
    {.open = "", .read = read_name_and_object, .only_first = true, .keeps_open = true}};
constexpr ToolMarker kDeepSeek[] = {
    control(tags("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", read_deepseek)),
    control(tags("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", read_deepseek))};
constexpr ToolMarker kKimi[] = {
    control(tags("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", read_kimi)),
    control(tags("<|tool_call_section_begin|>", "<|tool_call_section_end|>", read_kimi)),
    control(tags("<|tool_call_begin|>", "<|tool_call_end|>", read_kimi))};

// A sign contained in another one comes after it.
constexpr ToolFormat kToolFormats[] = {
    {"openai", {}, {"<|channel|>"}, true},
    {"mistral", kMistral, {"[TOOL_CALLS]"}, true},
    {"deepseek_v3", kDeepSeek, {"<｜tool▁calls▁begin｜>"}, true},
    {"deepseek_v32", kDeepSeek32, {"｜DSML｜"}, true},
    {"kimi_k2", kKimi, {"<|tool_calls_section_begin|>"}, true},
    {"minimax_m2", kMiniMax, {"<minimax:tool_call>"}, true},
    {"seed_oss", kSeed, {"<seed:tool_call>"}, true},
    {"apertus", kApertus, {"<|tools_prefix|>"}, true},
    {"glm45", kGlm, {"<arg_key>"}},
    {"qwen3_coder", kQwenCoder, {"<function="}},
    {"command", kCommand, {"<|START_ACTION|>"}, true},
    {"command_r", kCommand, {"directly_answer", "directly-answer"}, true},
    {"olmo3", kOlmo, {"<function_calls>"}, true},
    {"tool_calls", kToolCalls, {"<tool_calls>"}, true},
    {"nemotron", kNemotron, {"<TOOLCALL>", "<toolcall>"}, true},
    {"hermes", kHermes, {"<tool_call>"}},
    {"internlm", kInternLm, {"<|plugin|>"}, true},
    {"phi4_mini", kPhi, {"<|tool|>", "functools["}, true},
    {"granite", kGranite, {"<|tool_call|>", "available_tools"}, true},
    {"pythonic", kPythonic, {"<|python_start|>", "[func_name1("}, true},
    {"llama3_json", kLlama, {"<|python_tag|>", "{\"name\": function name"}, true},
    {"chatglm", kNames, {"metadata"}},
    {"json", kJson, {}},
};

}  // namespace

std::span<const ToolFormat> tool_formats() { return kToolFormats; }

const ToolFormat* find_tool_format(std::string_view name) {
  for (const ToolFormat& format : kToolFormats)
    if (format.name == name) return &format;
  return nullptr;
}

}  // namespace nereid::front
