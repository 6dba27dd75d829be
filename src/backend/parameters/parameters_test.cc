#include "backend/parameters/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "backend/parameters/lora_modules.h"
#include "base/file.h"
#include "base/testing/source_dir.h"
#include "base/testing/written_part.h"
#include "config/engine_options.h"

namespace nereid::backend {
namespace {

using testing::HasSubstr;

std::string error(const char* backend, const char* key, const char* value) {
  const Parameter* parameter = find_parameter(backend, key);
  if (parameter == nullptr) return "no such parameter";
  return std::string(message(check_parameter(*parameter, value)));
}

TEST(Parameters, ValuesAreCheckedByKind) {
  EXPECT_EQ(error("tensorrtllm", "max_beam_width", "4"), "");
  EXPECT_EQ(error("tensorrtllm", "max_beam_width", ""), "");
  EXPECT_EQ(error("tensorrtllm", "max_beam_width", "${max_beam_width}"), "");
  EXPECT_EQ(error("tensorrtllm", "max_beam_width", "17"),
            "parameter 'max_beam_width' is '17', expected an integer from 1 to 16");
  EXPECT_THAT(error("tensorrtllm", "max_beam_width", "4x"), HasSubstr("expected an integer"));
  EXPECT_THAT(error("tensorrtllm", "enable_chunked_context", "maybe"), HasSubstr("true or false"));
  EXPECT_EQ(error("tensorrtllm", "enable_chunked_context", "True"), "");
  EXPECT_THAT(error("tensorrtllm", "gpt_model_type", "INVALID"),
              HasSubstr("Invalid gpt_model_type"));
  EXPECT_THAT(error("tensorrtllm", "kv_cache_free_gpu_mem_fraction", "1.5"),
              HasSubstr("a number from 0 to 1"));
  EXPECT_THAT(error("tensorrtllm", "num_nodes", "2"), HasSubstr("only 1 works"));
  EXPECT_EQ(error("tensorrtllm", "num_nodes", "1"), "");
}

TEST(Parameters, WhatChangesNothingIsNamedWithItsReason) {
  const auto named = [](std::map<std::string, std::string> set) {
    return without_effect("tensorrtllm", [set](const char* key) {
      const auto it = set.find(key);
      return it == set.end() ? std::nullopt : std::optional(it->second);
    });
  };
  EXPECT_EQ(named({{"max_beam_width", "1"},
                   {"multi_block_mode", "${multi_block_mode}"},
                   {"FORCE_CPU_ONLY_INPUT_TENSORS", "no"}}),
            "");
  EXPECT_EQ(named({{"multi_block_mode", "true"}, {"recv_poll_period_ms", "0"}}),
            "'recv_poll_period_ms' is '0': requests are taken as they come, nothing polls; "
            "'multi_block_mode' is 'true': attention kernels choose how they split the work");
  for (const char* backend : {"tensorrtllm", "preprocessing", "postprocessing"}) {
    for (const auto& parameter : parameters_of(backend)) {
      if (*parameter.why_none == '\0') continue;
      EXPECT_EQ(parameter.use, ParameterUse::kNone) << parameter.key;
    }
  }
}

// Placeholder by key of each parameter in a template.
std::map<std::string, std::string> template_parameters(const std::string& text) {
  std::map<std::string, std::string> out;
  const std::string key = "parameters { key: \"", value = "string_value: \"";
  for (size_t at = 0; (at = text.find(key, at)) != std::string::npos;) {
    at += key.size();
    const std::string name = text.substr(at, text.find('"', at) - at);
    const size_t begin = text.find(value, at) + value.size();
    out[name] = text.substr(begin, text.find('"', begin) - begin);
  }
  return out;
}

TEST(Parameters, TemplatesHaveExactlyThese) {
  const std::pair<const char*, const char*> models[] = {
      {"inflight_batcher_llm/tensorrt_llm", "tensorrtllm"},
      {"inflight_batcher_llm/preprocessing", "preprocessing"},
      {"inflight_batcher_llm/postprocessing", "postprocessing"},
      {"inflight_batcher_llm/tensorrt_llm_bls", "tensorrt_llm_bls"},
      {"multimodal/multimodal_encoders", "multimodal_encoders"}};
  for (const auto& [model, backend] : models) {
    const auto text = read_file(source_dir() + "/all_models/" + model + "/config.pbtxt");
    ASSERT_TRUE(text.ok());
    auto found = template_parameters(*text);
    found.erase("FORCE_CPU_ONLY_INPUT_TENSORS");  // a constant in the template, not a placeholder
    size_t count = 0;
    for (const auto& p : parameters_of(backend)) {
      if (*p.placeholder == '\0') continue;
      ++count;
      EXPECT_EQ(found[p.key], std::string("${") + p.placeholder + "}") << model;
    }
    EXPECT_EQ(found.size(), count) << model;
  }
}

constexpr std::string_view kBegin =
    "# The parameters below are written by parameters_test (HACKING.md).\n";
constexpr std::string_view kEnd = "# End of the parameters that parameters_test writes.\n";

// A comment of lines of at most 120 characters.
std::string comment(std::string_view text) {
  std::string out = "#";
  size_t width = 1;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (width + 1 + end > 120) out += "\n#", width = 1;
    out.append(" ").append(text.substr(0, end));
    width += 1 + end;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + "\n";
}

std::string line_of(std::string_view key, std::string_view placeholder) {
  return fmt::format("parameters {{ key: \"{}\" value {{ string_value: \"${{{}}}\" }} }}\n", key,
                     placeholder);
}

// The parameters of the tensorrt_llm model, each with its help.
std::string parameters_text() {
  ExecutorConfig config = config::served_defaults();
  config.scheduler.capacity_policy = CapacityPolicy::kGuaranteedNoEvict;
  const config::Options options = config::engine_options(config);
  std::string out, group;
  std::set<std::string_view> keys;
  const auto begin_group = [&](const char* title) {
    if (group != title) out += fmt::format("\n# {}\n\n", group = title);
  };
  for (const config::Option& option : options) {
    if (!*option.parameter) continue;
    keys.insert(option.parameter);
    begin_group(option.group);
    const std::string fallback = config::default_of(option, options, &config::Option::parameter);
    out += comment(config::refer(option.help, options, &config::Option::parameter) +
                   (fallback.empty() ? "" : "; default: " + fallback));
    out += line_of(option.parameter, *option.placeholder ? option.placeholder : option.parameter);
  }
  for (const ParameterUse use :
       {ParameterUse::kActs, ParameterUse::kNone, ParameterUse::kRefused}) {
    begin_group(use == ParameterUse::kActs   ? "Model and requests"
                : use == ParameterUse::kNone ? "No effect; those that are set are named at load"
                                             : "Refused");
    for (const Parameter& p : parameters_of("tensorrtllm")) {
      if (p.use != use || *p.placeholder == '\0' || keys.contains(p.key)) continue;
      if (use == ParameterUse::kActs) out += comment(p.help);
      if (use == ParameterUse::kNone) out += comment(p.why_none);
      if (*p.words && use == ParameterUse::kRefused)
        out += comment(fmt::format("other than {}", p.words));
      out += line_of(p.key, p.placeholder);
    }
  }
  return out + "\n";
}

TEST(Parameters, TemplateOfTheEngineIsWhatTheDeclarationsSay) {
  expect_written_part("/all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt", kBegin, kEnd,
                      parameters_text(), "make options");
}

TEST(LoraModules, AreNamesAndFolders) {
  for (const char* unset : {"", "${lora_modules}"}) {
    const auto none = parse_lora_modules(unset);
    ASSERT_TRUE(none.ok()) << none.status();
    EXPECT_TRUE(none->empty());
  }
  const auto two = parse_lora_modules("a=/x;b=/y");
  ASSERT_TRUE(two.ok()) << two.status();
  ASSERT_EQ(two->size(), 2u);
  EXPECT_EQ((*two)[1].name, "b");
  EXPECT_EQ((*two)[1].folder, "/y");
  EXPECT_NE((*two)[0].task_id, (*two)[1].task_id);
  for (const char* wrong : {"a", "=x", "a=", "a=x;a=y", "a=x;${lora_modules}"})
    EXPECT_FALSE(parse_lora_modules(wrong).ok()) << wrong;
}

TEST(LoraModules, FoldersThatClientsNameLieInsideTheRoot) {
  namespace fs = std::filesystem;
  const fs::path top = fs::path(testing::TempDir()) / "nereid_lora_folders";
  fs::remove_all(top);
  const fs::path root = top / "root", other = top / "root2";
  fs::create_directories(root / "a" / "b");
  fs::create_directories(other / "a");
  fs::create_directory_symlink(other, root / "out");
  fs::create_directory_symlink(root / "a", root / "in");
  for (const fs::path& path : {fs::path("a/b"), root / "a/b", fs::path("in/b"),
                               fs::path("a/../a/b"), fs::path("../root/a/b")}) {
    const auto found = find_lora_folder(root, path.string());
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, fs::canonical(root / "a" / "b")) << path;
  }
  const auto code = [&](std::string_view path) {
    return find_lora_folder(root, path).status().code();
  };
  using enum absl::StatusCode;
  for (const std::string& path :
       {std::string("out/a"), std::string("../root2/a"), other.string(), std::string("/etc"),
        std::string("../nowhere"), std::string(), std::string("a\0b", 3)})
    EXPECT_EQ(code(path), kInvalidArgument) << path;
  EXPECT_EQ(code("a/c"), kNotFound);
  std::ofstream(root / "file") << "x";
  EXPECT_EQ(code("file"), kInvalidArgument);
  EXPECT_EQ(find_lora_folder(top / "nowhere", "a").status().code(), kNotFound);
}

}  // namespace
}  // namespace nereid::backend
