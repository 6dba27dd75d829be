#include "text/tokenizer/pattern.h"

#include "base/find_text.h"

namespace nereid::text {

StatusOr<Pattern> Pattern::from_json(const JsonNode& spec) {
  ASSIGN_OR_RETURN(const json::object* object, spec.object());
  Pattern pattern;
  const bool is_regex = object->contains("Regex");
  const JsonNode field = spec[is_regex ? "Regex" : "String"];
  ASSIGN_OR_RETURN(pattern.text_, field.bounded_string(kMaxBytes));
  if (pattern.text_.empty()) return field.wrong("a string that is not empty");
  if (!is_regex) return pattern;
  auto regex = Regex::compile(pattern.text_);
  if (!regex.ok()) return annotate(regex.status(), field.path());
  pattern.regex_ = *std::move(regex);
  return pattern;
}

Pattern Pattern::of_string(std::string text) {
  Pattern pattern;
  pattern.text_ = std::move(text);
  return pattern;
}

Status Pattern::find_all(std::string_view subject, std::vector<Span>& matches,
                         EncodeWork& work) const {
  if (regex_) return regex_->find_all(subject, matches, work);
  RETURN_IF_ERROR(work.charge(subject.size()));
  for (size_t at = 0; (at = find_text(subject, text_, at)) != subject.npos; at += text_.size()) {
    matches.push_back({at, at + text_.size()});
  }
  return ok();
}

StatusOr<bool> Pattern::replace_all(std::string& subject, std::string_view content,
                                    size_t max_bytes, EncodeWork& work) const {
  std::vector<Span> matches;
  RETURN_IF_ERROR(find_all(subject, matches, work));
  if (matches.empty()) return true;
  if (content.size() > text_.size() || regex_) {
    const size_t added = matches.size() * content.size();
    if (added > max_bytes - std::min(max_bytes, subject.size())) {
      return resource_exhausted("{} replacements by {} bytes make a text longer than {} bytes",
                                matches.size(), content.size(), max_bytes);
    }
  }
  std::string out;
  size_t done = 0;
  for (const Span& match : matches) {
    out.append(subject, done, match.begin - done);
    out += content;
    done = match.end;
  }
  const bool start_stays = matches[0].begin > 0 || !content.empty();
  out.append(subject, done);
  subject = std::move(out);
  return start_stays;
}

}  // namespace nereid::text
