// The table of formats. Sources: the models' published chat templates.
#include "front/output/reasoning_formats.h"

namespace nereid::front {
namespace {

constexpr ReasoningFormat kReasoningFormats[] = {
    {"gpt_oss", "<|channel|>analysis<|message|>",
     "<|end|><|start|>assistant<|channel|>final<|message|>", false, "<|channel|>", true,
     "<|end|><|start|>assistant"},
    {"mistral", "[THINK]", "[/THINK]", false, "[THINK]", true},
    {"command", "<|START_THINKING|>", "<|END_THINKING|>", false, "<|START_THINKING|>", true},
    {"granite", "Here is my thought process:", "Here is my response:", false,
     "Here is my thought process:"},
    {"seed_oss", "<seed:think>", "</seed:think>", false, "<seed:think>", true},
    {"apertus", "<|inner_prefix|>", "<|inner_suffix|>", false, "<|inner_prefix|>", true},
    {"qwen3", "<think>", "</think>", false, "<think>"},
    {"deepseek_r1", "<think>", "</think>", true, "</think>"},
};

}  // namespace

std::span<const ReasoningFormat> reasoning_formats() { return kReasoningFormats; }

const ReasoningFormat* find_reasoning_format(std::string_view name) {
  for (const ReasoningFormat& format : kReasoningFormats)
    if (format.name == name) return &format;
  return nullptr;
}

}  // namespace nereid::front
