// The table of formats. Sources: the models' published chat templates.
#include "front/output/tool_formats.h"

#include "front/output/tool_json.h"

namespace nereid::front {
namespace {

constexpr ToolMarker kTags[] = {{"<tool_call>", "</tool_call>"}};
constexpr ToolMarker kLlama[] = {{.open = "<|python_tag|>"},
                                 {.open = "{", .only_first = true, .keeps_open = true}};
constexpr ToolMarker kBrackets[] = {{"<|python_start|>", "<|python_end|>"},
                                    {.open = "[", .only_first = true, .keeps_open = true}};
constexpr ToolMarker kMistral[] = {{.open = "[TOOL_CALLS]"}};
constexpr ToolMarker kDeepSeek[] = {{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"}};
constexpr ToolMarker kKimi[] = {{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"}};
constexpr ToolMarker kGranite[] = {{.open = "<|tool_call|>"}, {.open = "<tool_call>"}};
constexpr ToolMarker kPhi[] = {{"<|tool_call|>", "<|/tool_call|>"}, {.open = "functools"}};
constexpr ToolMarker kCommand[] = {{"<|START_ACTION|>", "<|END_ACTION|>"},
                                   {"Action: ```json", "```"},
                                   {.open = "<|START_RESPONSE|>", .is_dropped = true},
                                   {.open = "<|END_RESPONSE|>", .is_dropped = true}};
constexpr ToolMarker kJson[] = {{.open = "{", .only_first = true, .keeps_open = true},
                                {.open = "[", .only_first = true, .keeps_open = true}};

// A sign that is part of another's stands behind it.
constexpr ToolFormat kToolFormats[] = {
    {"openai", {}, nullptr, "<|channel|>", true},
    {"mistral", kMistral, read_mistral, "[TOOL_CALLS]", true},
    {"deepseek_v3", kDeepSeek, read_deepseek, "<｜tool▁calls▁begin｜>", true},
    {"kimi_k2", kKimi, read_kimi, "<|tool_calls_section_begin|>", true},
    {"glm45", kTags, read_glm, "<arg_key>"},
    {"qwen3_coder", kTags, read_qwen_coder, "<function="},
    {"command", kCommand, read_command, "<|START_ACTION|>", true},
    {"command_r", kCommand, read_command, "directly_answer", true},
    {"hermes", kTags, read_json_calls, "<tool_call>"},
    {"phi4_mini", kPhi, read_json_calls, "<|tool|>", true},
    {"granite", kGranite, read_json_calls, "<|tool_call|>", true},
    {"pythonic", kBrackets, read_pythonic, "<|python_start|>"},
    {"llama3_json", kLlama, read_json_list, "<|python_tag|>", true},
    {"json", kJson, read_json_calls, ""},
};

}  // namespace

std::span<const ToolFormat> tool_formats() { return kToolFormats; }

const ToolFormat* find_tool_format(std::string_view name) {
  for (const ToolFormat& format : kToolFormats)
    if (format.name == name) return &format;
  return nullptr;
}

}  // namespace nereid::front
