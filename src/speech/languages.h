// Languages of speech models: codes and English names.
#pragma once

#include <span>
#include <string_view>

namespace nereid::speech {

struct Language {
  std::string_view code;  // ISO 639-1, of some 639-2
  std::string_view name;  // in lower case
};

// All, in the order of the vocabularies.
std::span<const Language> languages();

// By code or name, in any case; a region behind the code ("en-US") is left out. Null: none.
const Language* find_language(std::string_view text);

}  // namespace nereid::speech
