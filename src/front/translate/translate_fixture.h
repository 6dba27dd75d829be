// Tests of translations: bodies and what becomes of them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <variant>

#include "base/json.h"
#include "front/translate/anthropic.h"
#include "front/translate/translated_exchange.h"

namespace nereid::front::testing_only {

inline json::object object_of(std::string_view text) { return parse_json(text)->get_object(); }

inline json::object chat_of(const std::variant<Translated, TranslationFault>& t) {
  const auto* fault = std::get_if<TranslationFault>(&t);
  EXPECT_EQ(fault, nullptr) << fault->message;
  return fault ? json::object() : object_of(std::get<Translated>(t).body);
}
inline const Translated& read_of(const std::variant<Translated, TranslationFault>& t) {
  const auto* fault = std::get_if<TranslationFault>(&t);
  EXPECT_EQ(fault, nullptr) << fault->message;
  return std::get<Translated>(t);
}
inline std::string fault_of(const std::variant<Translated, TranslationFault>& t) {
  const auto* fault = std::get_if<TranslationFault>(&t);
  return fault ? fault->message : "";
}

// The messages of a request with this "messages" array, and more members.
inline std::variant<Translated, TranslationFault> translate_messages_of(
    std::string_view messages, std::string_view more = "") {
  return translate_messages(
      object_of(fmt::format(R"({{"max_tokens": 1, "messages": {}{}}})", messages, more)));
}

inline constexpr char kHi[] = R"([{"role": "user", "content": "hi"}])";

}  // namespace nereid::front::testing_only
