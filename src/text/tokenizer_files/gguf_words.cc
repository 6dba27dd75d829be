#include "text/tokenizer_files/gguf_words.h"

#include <algorithm>

#include "text/tokenizer/word_patterns.h"

namespace nereid::text {
namespace {

constexpr std::string_view kGpt2[] = {kGpt2Pattern};
constexpr std::string_view kLlama3[] = {kCl100kPattern};
constexpr std::string_view kQwen2[] = {kQwen2Pattern};
constexpr std::string_view kO200k[] = {kO200kPattern};
constexpr std::string_view kTekken[] = {kTekkenPattern};
constexpr std::string_view kKimi[] = {kKimiPattern};
constexpr std::string_view kDigitsGpt2[] = {R"(\p{N})", kGpt2Pattern};
constexpr std::string_view kFalcon[] = {R"([\p{P}$+<=>^~|`]+)", kGpt2Pattern, "[0-9][0-9][0-9]"};
constexpr std::string_view kUnnamed[] = {R"([\p{P}$+<=>^~|]+)", kGpt2Pattern, R"(\p{N}+)",
                                         "[0-9][0-9][0-9]"};
constexpr std::string_view kBloom[] = {R"( ?[^(\s|.,!?…。，、।۔،)]+)"};
constexpr std::string_view kViking[] = {kBloom[0], R"(\p{N})"};
constexpr std::string_view kDeepseekCoder[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                               "[一-龥ࠀ-一가-퟿]+", R"(\p{N})"};
constexpr std::string_view kDeepseekLlm[] = {
    R"([\r\n])",
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ\u1F5F-\u1F7Dᾀ-ᾴᾶ-ᾼ\u1FBEῂ-ῄῆ-ῌ\u1FD0-\u1FD3\u1FD6-\u1FDBῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212A-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)",
    R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)",
    R"(\s+$)",
    "[一-龥ࠀ-一가-퟿]+",
    R"(\p{N}+)"};
constexpr std::string_view kDeepseek3[] = {
    R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kBailing[] = {
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr std::string_view kSeedCoder[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kExaoneMoe[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr std::string_view kQwen35[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kSuperBpe[] = {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"};
constexpr std::string_view kTinyAya[] = {R"(\d{1,3}(?=(?:\d{3})*\b))", kO200kPattern};

constexpr std::string_view kGpt2Names[] = {"gpt-2",    "phi-2",           "jais",
                                           "exaone4",  "trillion",        "mellum",
                                           "gigachat", "granite-docling", "a.x-4.0"};
constexpr std::string_view kGpt2NfcNames[] = {"mpt", "olmo"};
constexpr std::string_view kDigitsGpt2Names[] = {"starcoder", "refact",  "smollm",    "codeshell",
                                                 "exaone",    "mellum2", "minerva-7b"};
constexpr std::string_view kCommandRNames[] = {"command-r"};
constexpr std::string_view kLlama3Names[] = {"llama-bpe", "llama3",  "llama-v3", "falcon3",
                                             "falcon-h1", "pixtral", "midm-2.0", "lfm2"};
constexpr std::string_view kCl100kNames[] = {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"};
constexpr std::string_view kMiniCpm5Names[] = {"minicpm5"};
constexpr std::string_view kQwen2Names[] = {"qwen2", "megrez"};
constexpr std::string_view kQwen2PlainNames[] = {"deepseek-r1-qwen", "stablelm2", "hunyuan",
                                                 "solar-open",       "kormo",     "grok-2"};
constexpr std::string_view kTekkenNames[] = {"tekken"};
constexpr std::string_view kO200kNames[] = {"gpt-4o", "llama4", "kanana2", "minimax-m2"};
constexpr std::string_view kDeepseekLlmNames[] = {"deepseek-llm"};
constexpr std::string_view kDeepseekCoderNames[] = {"deepseek-coder"};
constexpr std::string_view kDeepseek3Names[] = {"deepseek-v3", "hunyuan-dense", "joyai-llm"};
constexpr std::string_view kFalconNames[] = {"falcon"};
constexpr std::string_view kUnnamedNames[] = {"default"};
constexpr std::string_view kBloomNames[] = {"bloom", "gpt3-finnish", "poro-chat"};
constexpr std::string_view kVikingNames[] = {"viking"};
constexpr std::string_view kBailingNames[] = {"bailingmoe", "bailingmoe2", "llada-moe"};
constexpr std::string_view kSeedCoderNames[] = {"seed-coder"};
constexpr std::string_view kKimiNames[] = {"kimi-k2"};
constexpr std::string_view kExaoneMoeNames[] = {"exaone-moe"};
constexpr std::string_view kQwen35Names[] = {"qwen35"};
constexpr std::string_view kSuperBpeNames[] = {"superbpe"};
constexpr std::string_view kTinyAyaNames[] = {"tiny_aya", "cohere2moe"};

constexpr GgufWords kRows[] = {
    {.patterns = kGpt2, .names = kGpt2Names},
    {.patterns = kGpt2, .names = kGpt2NfcNames, .is_nfc = true},
    {.patterns = kDigitsGpt2, .names = kDigitsGpt2Names},
    {.patterns = kDigitsGpt2, .names = kCommandRNames, .is_nfc = true},
    {.patterns = kLlama3, .names = kLlama3Names, .ignore_merges = true, .adds_bos = true},
    {.patterns = kLlama3, .names = kCl100kNames},
    {.patterns = kLlama3, .names = kMiniCpm5Names, .ignore_merges = true},
    {.patterns = kQwen2, .names = kQwen2Names, .is_nfc = true},
    {.patterns = kQwen2, .names = kQwen2PlainNames},
    {.patterns = kTekken, .names = kTekkenNames, .ignore_merges = true, .adds_bos = true},
    {.patterns = kO200k, .names = kO200kNames},
    {.patterns = kDeepseekLlm, .names = kDeepseekLlmNames},
    {.patterns = kDeepseekCoder, .names = kDeepseekCoderNames},
    {.patterns = kDeepseek3, .names = kDeepseek3Names},
    {.patterns = kFalcon, .names = kFalconNames},
    {.patterns = kUnnamed, .names = kUnnamedNames},
    {.patterns = kBloom, .names = kBloomNames},
    {.patterns = kViking, .names = kVikingNames},
    {.patterns = kBailing, .names = kBailingNames},
    {.patterns = kSeedCoder, .names = kSeedCoderNames},
    {.patterns = kKimi, .names = kKimiNames},
    {.patterns = kExaoneMoe, .names = kExaoneMoeNames},
    {.patterns = kQwen35, .names = kQwen35Names, .is_nfc = true},
    {.patterns = kSuperBpe, .names = kSuperBpeNames},
    {.patterns = kTinyAya, .names = kTinyAyaNames},
};

}  // namespace

const GgufWords* find_gguf_words(std::string_view name) {
  for (const GgufWords& row : kRows)
    if (std::ranges::find(row.names, name) != row.names.end()) return &row;
  return nullptr;
}

std::string gguf_words_names() {
  std::string all;
  for (const GgufWords& row : kRows)
    for (const std::string_view name : row.names) {
      if (!all.empty()) all += ", ";
      all += name;
    }
  return all;
}

}  // namespace nereid::text
