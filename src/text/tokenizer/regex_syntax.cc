#include "text/tokenizer/regex_syntax.h"

#include <utility>
#include <vector>

#include "text/unicode/scripts.h"

namespace nereid::text {

namespace {

constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kHex = "0-9a-fA-F";
constexpr int kMaxNestedClasses = 16;

struct PosixRow {
  std::string_view name, members;
};

constexpr PosixRow kPosix[] = {{"alpha", "\\p{Alphabetic}"},
                               {"digit", "\\p{Nd}"},
                               {"alnum", "\\p{Alphabetic}\\p{Nd}"},
                               {"space", "\\p{White_Space}"},
                               {"upper", "\\p{Uppercase}"},
                               {"lower", "\\p{Lowercase}"},
                               {"word", kWord},
                               {"xdigit", kHex},
                               {"punct", "[:punct:]"}};

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : p_(pattern) {}

  StatusOr<std::string> run() {
    std::string out;
    while (i_ < p_.size()) {
      const char c = p_[i_];
      if (c == '\\') {
        RETURN_IF_ERROR(escape(out));
      } else if (c == '[') {
        ++i_;
        ASSIGN_OR_RETURN(const std::string expression, character_class(0));
        out += expression;
      } else if (p_.substr(i_, 2) == "(?") {
        group(out);
      } else if (c == '}' && i_ + 1 < p_.size() && p_[i_ + 1] == '+') {
        return refuse("a possessive interval");  // the dialects disagree on its meaning
      } else {
        out += c;
        ++i_;
      }
    }
    return out;
  }

 private:
  Status refuse(std::string_view what) const {
    return unsupported("regex '{}': {} at offset {}", p_, what, i_);
  }

  // Options of a group: m means that a dot matches line breaks.
  void group(std::string& out) {
    out += "(?";
    i_ += 2;
    const size_t end = p_.find_first_not_of("imx-", i_);
    if (end == p_.npos || (p_[end] != ':' && p_[end] != ')')) return;
    for (; i_ < end; ++i_) out += p_[i_] == 'm' ? 's' : p_[i_];
  }

  // \p{Name}: scripts get the prefix that selects the Script property, not its extensions.
  bool property(std::string& out) {
    const size_t end = p_.find('}', i_);
    if (p_.substr(i_ + 2, 1) != "{" || end == p_.npos) return false;
    std::string_view name = p_.substr(i_ + 3, end - i_ - 3);
    out += p_.substr(i_, 3);
    if (name.starts_with('^')) {
      out += '^';
      name.remove_prefix(1);
    }
    if (is_script_name(name)) out += "sc:";
    out += name;
    out += '}';
    i_ = end + 1;
    return true;
  }

  // Copies an escape with the same meaning inside and outside of classes; false for others.
  bool common_escape(std::string& out) {
    const char c = i_ + 1 < p_.size() ? p_[i_ + 1] : 0;
    if (c == 's' || c == 'S') {
      out += c == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
      i_ += 2;
      return true;
    }
    if (c == 'p' || c == 'P') return property(out);
    if (c == 'u' && p_.size() - i_ >= 6 && is_hex(p_[i_ + 2]) && is_hex(p_[i_ + 3]) &&
        is_hex(p_[i_ + 4]) && is_hex(p_[i_ + 5])) {
      out += fmt::format("\\x{{{}}}", p_.substr(i_ + 2, 4));
      i_ += 6;
      return true;
    }
    return false;
  }

  // The members of \w or \h (and of \W, \H), or nothing.
  std::string_view members_of_escape() const {
    const char c = i_ + 1 < p_.size() ? p_[i_ + 1] : 0;
    return c == 'w' || c == 'W' ? kWord : c == 'h' || c == 'H' ? kHex : std::string_view();
  }

  Status escape(std::string& out) {
    if (i_ + 1 == p_.size()) return refuse("a backslash without a character");
    if (common_escape(out)) return ok();
    if (const std::string_view members = members_of_escape(); !members.empty()) {
      const bool negated = p_[i_ + 1] < 'a';
      out += fmt::format("[{}{}]", negated ? "^" : "", members);
    } else {
      out += p_.substr(i_, 2);
    }
    i_ += 2;
    return ok();
  }

  // One operand of &&: plain members, and nested classes as expressions of their own.
  struct Operand {
    std::string members;
    std::vector<std::string> nested;
    bool empty() const { return members.empty() && nested.empty(); }
    std::string expression() const {
      if (nested.empty()) return fmt::format("[{}]", members);
      std::string out = members.empty() ? "(?:" : fmt::format("(?:[{}]|", members);
      for (size_t i = 0; i < nested.size(); ++i) out += (i == 0 ? "" : "|") + nested[i];
      return out + ")";
    }
  };

  // The rest of a class behind its opening bracket, closing bracket included.
  StatusOr<std::string> character_class(int depth) {
    if (depth > kMaxNestedClasses) return refuse("too deeply nested character class");
    const bool negated = i_ < p_.size() && p_[i_] == '^';
    if (negated) ++i_;
    std::vector<Operand> operands(1);
    for (bool first = true;; first = false) {
      if (i_ >= p_.size()) return refuse("a character class without an end");
      if (p_[i_] == ']' && !first) break;
      if (p_.substr(i_, 2) == "&&") {
        i_ += 2;
        operands.emplace_back();
      } else {
        RETURN_IF_ERROR(class_item(operands.back(), depth));
      }
    }
    ++i_;
    for (const Operand& operand : operands) {
      if (operand.empty()) return refuse("an empty part of a character class");
    }
    if (operands.size() == 1 && operands[0].nested.empty()) {
      return fmt::format("[{}{}]", negated ? "^" : "", operands[0].members);
    }
    std::string out = "(?:";
    for (size_t i = 0; i + 1 < operands.size(); ++i) out += "(?=" + operands[i].expression() + ")";
    out += operands.back().expression() + ")";
    return negated ? "(?:(?!" + out + ")(?s:.))" : out;
  }

  Status class_item(Operand& operand, int depth) {
    const char c = p_[i_];
    if (c == '[' && p_.substr(i_, 2) == "[:") return posix_class(operand);
    if (c == '[') {
      ++i_;
      ASSIGN_OR_RETURN(std::string nested, character_class(depth + 1));
      operand.nested.push_back(std::move(nested));
      return ok();
    }
    if (c != '\\') {
      operand.members += c;
      ++i_;
      return ok();
    }
    if (i_ + 1 == p_.size()) return refuse("a backslash without a character");
    if (common_escape(operand.members)) return ok();
    const std::string_view members = members_of_escape();
    if (members.empty()) {
      operand.members += p_.substr(i_, 2);
    } else if (p_[i_ + 1] >= 'a') {
      operand.members += members;
    } else {
      operand.nested.push_back(fmt::format("[^{}]", members));
    }
    i_ += 2;
    return ok();
  }

  Status posix_class(Operand& operand) {
    const size_t end = p_.find(":]", i_);
    if (end == p_.npos) return refuse("a POSIX class without an end");
    const std::string_view name = p_.substr(i_ + 2, end - i_ - 2);
    for (const PosixRow& row : kPosix) {
      if (row.name != name) continue;
      operand.members += row.members;
      i_ = end + 2;
      return ok();
    }
    return refuse(
        "a POSIX class other than alpha, digit, alnum, space, upper, lower, word, xdigit, punct");
  }

  std::string_view p_;
  size_t i_ = 0;
};

}  // namespace

StatusOr<std::string> to_pcre2(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace nereid::text
