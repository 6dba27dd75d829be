#include "speech/languages.h"

#include <array>
#include <string>

namespace nereid::speech {
namespace {

// In the order of the tokens in the models' vocabularies. Source: tokenizer.py of openai/whisper.
constexpr auto kLanguages =
    std::to_array<Language>({{"en", "english"},     {"zh", "chinese"},    {"de", "german"},
                             {"es", "spanish"},     {"ru", "russian"},    {"ko", "korean"},
                             {"fr", "french"},      {"ja", "japanese"},   {"pt", "portuguese"},
                             {"tr", "turkish"},     {"pl", "polish"},     {"ca", "catalan"},
                             {"nl", "dutch"},       {"ar", "arabic"},     {"sv", "swedish"},
                             {"it", "italian"},     {"id", "indonesian"}, {"hi", "hindi"},
                             {"fi", "finnish"},     {"vi", "vietnamese"}, {"he", "hebrew"},
                             {"uk", "ukrainian"},   {"el", "greek"},      {"ms", "malay"},
                             {"cs", "czech"},       {"ro", "romanian"},   {"da", "danish"},
                             {"hu", "hungarian"},   {"ta", "tamil"},      {"no", "norwegian"},
                             {"th", "thai"},        {"ur", "urdu"},       {"hr", "croatian"},
                             {"bg", "bulgarian"},   {"lt", "lithuanian"}, {"la", "latin"},
                             {"mi", "maori"},       {"ml", "malayalam"},  {"cy", "welsh"},
                             {"sk", "slovak"},      {"te", "telugu"},     {"fa", "persian"},
                             {"lv", "latvian"},     {"bn", "bengali"},    {"sr", "serbian"},
                             {"az", "azerbaijani"}, {"sl", "slovenian"},  {"kn", "kannada"},
                             {"et", "estonian"},    {"mk", "macedonian"}, {"br", "breton"},
                             {"eu", "basque"},      {"is", "icelandic"},  {"hy", "armenian"},
                             {"ne", "nepali"},      {"mn", "mongolian"},  {"bs", "bosnian"},
                             {"kk", "kazakh"},      {"sq", "albanian"},   {"sw", "swahili"},
                             {"gl", "galician"},    {"mr", "marathi"},    {"pa", "punjabi"},
                             {"si", "sinhala"},     {"km", "khmer"},      {"sn", "shona"},
                             {"yo", "yoruba"},      {"so", "somali"},     {"af", "afrikaans"},
                             {"oc", "occitan"},     {"ka", "georgian"},   {"be", "belarusian"},
                             {"tg", "tajik"},       {"sd", "sindhi"},     {"gu", "gujarati"},
                             {"am", "amharic"},     {"yi", "yiddish"},    {"lo", "lao"},
                             {"uz", "uzbek"},       {"fo", "faroese"},    {"ht", "haitian creole"},
                             {"ps", "pashto"},      {"tk", "turkmen"},    {"nn", "nynorsk"},
                             {"mt", "maltese"},     {"sa", "sanskrit"},   {"lb", "luxembourgish"},
                             {"my", "myanmar"},     {"bo", "tibetan"},    {"tl", "tagalog"},
                             {"mg", "malagasy"},    {"as", "assamese"},   {"tt", "tatar"},
                             {"haw", "hawaiian"},   {"ln", "lingala"},    {"ha", "hausa"},
                             {"ba", "bashkir"},     {"jw", "javanese"},   {"su", "sundanese"},
                             {"yue", "cantonese"}});

// Other names of languages, with their codes.
constexpr auto kOtherNames = std::to_array<Language>({{"my", "burmese"},
                                                      {"ca", "valencian"},
                                                      {"nl", "flemish"},
                                                      {"ht", "haitian"},
                                                      {"lb", "letzeburgesch"},
                                                      {"ps", "pushto"},
                                                      {"pa", "panjabi"},
                                                      {"ro", "moldavian"},
                                                      {"ro", "moldovan"},
                                                      {"si", "sinhalese"},
                                                      {"es", "castilian"},
                                                      {"zh", "mandarin"}});

std::string in_lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

}  // namespace

std::span<const Language> languages() { return kLanguages; }

const Language* find_language(std::string_view text) {
  constexpr size_t kLongest = 32;
  if (text.size() > kLongest) return nullptr;
  std::string wanted = in_lower_case(text);
  for (const auto& [code, name] : kOtherNames)
    if (wanted == name) wanted = code;
  for (const Language& language : kLanguages)
    if (wanted == language.code || wanted == language.name) return &language;
  // A region does not matter: en-US, pt_BR.
  const size_t end = wanted.find_first_of("-_");
  return end == std::string::npos || end == 0 ? nullptr : find_language(wanted.substr(0, end));
}

}  // namespace nereid::speech
