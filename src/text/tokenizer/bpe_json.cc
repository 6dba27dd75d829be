// Reads the model of type BPE.
#include "text/tokenizer/bpe.h"

namespace nereid::text {

namespace {

constexpr size_t kMaxAffixBytes = 64;

struct MergeReader {
  const Vocab& vocab;
  size_t prefix_bytes;  // bytes dropped from the right token of a pair

  StatusOr<MergeRule> rule(const JsonNode& list, size_t index, std::string_view left,
                           std::string_view right) const {
    const auto refuse = [&](std::string_view token) {
      return list[index].wrong(fmt::format("tokens of the vocabulary; '{}' is none", token));
    };
    if (right.size() < prefix_bytes) return refuse(right);
    const auto left_id = vocab.id(left), right_id = vocab.id(right);
    if (!left_id) return refuse(left);
    if (!right_id) return refuse(right);
    const std::string joined = fmt::format("{}{}", left, right.substr(prefix_bytes));
    const auto id = vocab.id(joined);
    if (!id) return refuse(joined);
    return MergeRule{*left_id, *right_id, *id, static_cast<uint32_t>(index)};
  }

  // A merge rule: "LEFT RIGHT" or ["LEFT", "RIGHT"].
  StatusOr<MergeRule> read(const JsonNode& list, const json::value& merge, size_t index) const {
    if (const json::string* text = merge.if_string()) {
      const std::string_view line = view_of(*text);
      const size_t space = line.find(' ');
      if (space == line.npos || line.find(' ', space + 1) != line.npos) {
        return list[index].wrong("two tokens and one space");
      }
      return rule(list, index, line.substr(0, space), line.substr(space + 1));
    }
    const json::array* pair = merge.if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() ||
        !(*pair)[1].is_string()) {
      return list[index].wrong("a string or a pair of strings");
    }
    return rule(list, index, view_of((*pair)[0].get_string()), view_of((*pair)[1].get_string()));
  }
};

}  // namespace

StatusOr<std::unique_ptr<Bpe>> Bpe::from_json(const JsonNode& spec) {
  const JsonNode dropout = spec["dropout"];
  if (!dropout.is_null() &&
      !(dropout.value().is_number() && dropout.value().to_number<double>() == 0)) {
    return unsupported("{}", message(dropout.wrong("null or 0: tokens must not be random")));
  }
  ASSIGN_OR_RETURN(Vocab vocab, Vocab::from_json(spec["vocab"]));
  BpeOptions options;
  ASSIGN_OR_RETURN(options.fuse_unknown, spec["fuse_unk"].boolean(false));
  ASSIGN_OR_RETURN(options.byte_fallback, spec["byte_fallback"].boolean(false));
  ASSIGN_OR_RETURN(options.ignore_merges, spec["ignore_merges"].boolean(false));
  for (const auto& [name, field] : {std::pair("continuing_subword_prefix", &options.prefix),
                                    std::pair("end_of_word_suffix", &options.suffix)}) {
    if (spec[name].is_null()) continue;
    ASSIGN_OR_RETURN(*field, spec[name].bounded_string(kMaxAffixBytes));
  }
  ASSIGN_OR_RETURN(const std::string_view unknown, spec["unk_token"].string(""));
  if (!unknown.empty()) {
    options.unknown = vocab.id(unknown);
    if (!options.unknown) return spec["unk_token"].wrong("a token of the vocabulary");
  }
  const JsonNode list = spec["merges"];
  ASSIGN_OR_RETURN(const json::array* items, list.array());
  const MergeReader reader{vocab, options.prefix.size()};
  std::vector<MergeRule> merges;
  merges.reserve(items->size());
  for (size_t i = 0; i < items->size(); ++i) {
    ASSIGN_OR_RETURN(const MergeRule rule, reader.read(list, (*items)[i], i));
    merges.push_back(rule);
  }
  return std::make_unique<Bpe>(std::move(vocab), merges, std::move(options));
}

}  // namespace nereid::text
