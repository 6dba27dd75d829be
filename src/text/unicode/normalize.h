// Unicode normalisation forms, lower case and grapheme clusters (utf8proc) of valid UTF-8.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::text {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Replaces `text` by its normal form. ResourceExhausted: no memory.
Status normalize_unicode(NormalForm form, std::string& text);

// Appends the lower case of `c`, without regard to its neighbours.
void append_lower_case(std::string& out, char32_t c);

// Bytes of the first extended grapheme cluster of `text`, which is not empty.
size_t grapheme_length(std::string_view text);

}  // namespace nereid::text
