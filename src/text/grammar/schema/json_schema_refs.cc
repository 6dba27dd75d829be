// URI references within a schema (RFC 3986, as far as schemas need it).
#include "text/grammar/schema/json_schema_refs.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace nereid::text {
namespace {

constexpr std::string_view kOne[] = {"items",
                                     "additionalProperties",
                                     "not",
                                     "if",
                                     "then",
                                     "else",
                                     "contains",
                                     "propertyNames",
                                     "contentSchema",
                                     "additionalItems",
                                     "allOf",
                                     "anyOf",
                                     "oneOf",
                                     "prefixItems",
                                     "unevaluatedItems",
                                     "unevaluatedProperties"};
constexpr std::string_view kNamed[] = {"properties",  "patternProperties", "$defs",
                                       "definitions", "dependentSchemas",  "dependencies"};

// The address without its fragment, which goes to `fragment`.
std::string_view split(std::string_view address, std::string_view& fragment) {
  const size_t hash = address.find('#');
  if (hash == std::string_view::npos) return address;
  fragment = address.substr(hash + 1);
  return address.substr(0, hash);
}

bool has_scheme(std::string_view address) {
  const size_t colon = address.find(':');
  return colon != std::string_view::npos && colon > 0 && address.find_first_of("/?#") > colon &&
         std::isalpha(static_cast<uint8_t>(address[0]));
}

// Removes dot segments.
std::string without_dots(std::string_view path) {
  std::vector<std::string_view> steps;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view step = path.substr(at, end - at);
    const bool last = end == path.size();
    if (step == "..") {
      if (steps.size() > 1) steps.pop_back();
      if (last) steps.push_back("");
    } else if (step == ".") {
      if (last) steps.push_back("");
    } else {
      steps.push_back(step);
    }
    at = end + 1;
  }
  return fmt::format("{}", fmt::join(steps, "/"));
}

// Resolves `ref`, which has no fragment, against `base`.
std::string resolved(std::string_view base, std::string_view ref) {
  if (ref.empty()) return std::string(base);
  if (has_scheme(ref)) return std::string(ref);
  const size_t colon = has_scheme(base) ? base.find(':') + 1 : 0;
  if (ref.starts_with("//")) return std::string(base.substr(0, colon)).append(ref);
  size_t path = colon;  // start of the path of `base`
  if (base.substr(colon).starts_with("//")) path = std::min(base.find('/', colon + 2), base.size());
  if (ref.starts_with("/")) return std::string(base.substr(0, path)) + without_dots(ref);
  const std::string_view own = base.substr(path);
  const size_t slash = own.rfind('/');
  std::string joined = slash == std::string_view::npos ? (path > colon ? "/" : "")
                                                       : std::string(own.substr(0, slash + 1));
  return std::string(base.substr(0, path)) + without_dots(joined.append(ref));
}

std::string percent_decoded(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    const auto digits = text.substr(i + 1, 2);
    const bool hex = text[i] == '%' && digits.size() == 2 &&
                     std::ranges::all_of(digits, [](char c) { return std::isxdigit(c); });
    if (!hex) {
      result += text[i];
      continue;
    }
    for (const char c : digits)
      code = code * 16 + static_cast<unsigned>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    result += static_cast<char>(code);
    i += 2;
  }
  return result;
}

std::optional<std::string_view> text_of(const SchemaAt& at, std::string_view key) {
  const json::value* value = at.find(key);
  if (!value || !value->is_string()) return std::nullopt;
  return std::string_view(value->get_string());
}

}  // namespace

std::string SchemaAt::pointer_of(std::string_view key) const {
  if (pointer.size() >= kLongestPointer) return pointer;
  std::string result = pointer + "/";
  for (const char c : key.substr(0, kLongestPointer)) {
    if (c == '~' || c == '/')
      result += c == '~' ? "~0" : "~1";
    else
      result += c;
  }
  return result;
}

SchemaAt SchemaAt::operator[](std::string_view key) const {
  return {&object().at(key), pointer_of(key)};
}

SchemaAt SchemaAt::operator[](size_t index) const {
  return {&value->get_array().at(index), pointer_of(std::to_string(index))};
}

const json::value* SchemaAt::find(std::string_view key) const { return object().if_contains(key); }

Status SchemaAt::error(std::string_view reason, std::string_view key) const {
  const std::string where = key.empty() ? pointer : pointer_of(key);
  return invalid_argument("schema: '{}': {}", where.substr(0, kLongestPointer), reason);
}

SchemaRefs::SchemaRefs(const SchemaAt& root) {
  resources_[""] = root;
  is_old_ = root.value->is_object() && draft_of(root, {}).refers_alone;
  visit(root, std::make_shared<const std::string>(), {});
  for (const OtherId& other : std::exchange(other_ids_, {}))
    add_address(other.at, other.id, other.base);
}

SchemaRefs::Draft SchemaRefs::draft_of(const SchemaAt& at, Draft outer) {
  constexpr std::string_view kOld[] = {"/draft-03/", "/draft-04/", "/draft-06/", "/draft-07/"};
  const auto schema = text_of(at, "$schema");
  if (!schema) return outer;
  const auto is = [&](std::string_view draft) { return schema->find(draft) != schema->npos; };
  return {.has_old_id = is(kOld[0]) || is(kOld[1]), .refers_alone = std::ranges::any_of(kOld, is)};
}

// The base URI inside the schema: the new address, unless `id` is an anchor.
SchemaRefs::Base SchemaRefs::add_address(const SchemaAt& at, std::string_view id,
                                         const Base& base) {
  constexpr size_t kLongest = 1000;
  if (base->size() + id.size() > kLongest) return base;
  std::string_view fragment;
  std::string address = resolved(*base, split(id, fragment));
  // Before draft 2019-09 an anchor is a fragment of "$id".
  if (!fragment.empty()) anchors_.try_emplace(fmt::format("{}#{}", address, fragment), at);
  if (id.starts_with('#')) return base;
  resources_.try_emplace(address, at);
  return std::make_shared<const std::string>(std::move(address));
}

void SchemaRefs::visit(const SchemaAt& at, Base base, Draft draft) {
  if (at.value->is_array()) return visit_all(at, base, draft);
  if (!at.value->is_object()) return;
  draft = draft_of(at, draft);
  const bool refers = draft.refers_alone && text_of(at, "$ref");
  if (refers) referring_.insert(at.value);
  const auto id = text_of(at, draft.has_old_id ? "id" : "$id");
  const auto other_id = text_of(at, draft.has_old_id ? "$id" : "id");
  if (id && !refers)
    base = add_address(at, *id, base);
  else if (other_id)
    other_ids_.push_back({at, *other_id, base});
  if (!base->empty()) base_of_[at.value] = base;
  constexpr size_t kLongestName = 1000;
  for (const std::string_view key : {"$anchor", "$dynamicAnchor"})
    if (const auto name = text_of(at, key); name && name->size() <= kLongestName) {
      anchors_.try_emplace(fmt::format("{}#{}", *base, *name), at);
      if (key == "$dynamicAnchor") ++num_dynamic_[std::string(*name)];
    }
  for (const std::string_view key : kOne)
    if (at.find(key)) visit(at[key], base, draft);
  for (const std::string_view key : kNamed)
    if (at.find(key)) visit_all(at[key], base, draft);
}

void SchemaRefs::visit_all(const SchemaAt& at, const Base& base, Draft draft) {
  if (at.value->is_array())
    for (size_t i = 0; i < at.value->get_array().size(); ++i) visit(at[i], base, draft);
  if (at.value->is_object())
    for (const auto& member : at.object()) visit(at[std::string_view(member.key())], base, draft);
}

StatusOr<SchemaAt> SchemaRefs::target(const SchemaAt& at, std::string_view key) const {
  const auto ref = text_of(at, key);
  if (!ref) return at.error("must be a string", key);
  std::string_view fragment;
  const auto own = base_of_.find(at.value);
  const std::string_view base = own == base_of_.end() ? std::string_view() : *own->second;
  const std::string address = resolved(base, split(*ref, fragment));
  const auto resource = resources_.find(address);
  if (resource == resources_.end())
    return at.error(
        "only references into this schema ('#/...', or an '$id' or '$anchor' in it) are supported",
        key);
  const SchemaAt& whole = resource->second;
  if (key == "$dynamicRef") {
    const auto count = num_dynamic_.find(fragment);
    if (count != num_dynamic_.end() && count->second > 1)
      return at.error("several '$dynamicAnchor' of this name are not supported", key);
  }
  if (fragment.empty()) return whole;
  const std::string inside = percent_decoded(fragment);
  if (!inside.starts_with('/')) {
    const auto anchor = anchors_.find(fmt::format("{}#{}", address, inside));
    if (anchor != anchors_.end()) return anchor->second;
    return at.error(fmt::format("there is no anchor '{}'", inside.substr(0, 100)), key);
  }
  boost::system::error_code failure;
  const json::value* value = whole.value->find_pointer(inside, failure);
  if (!value) {  // authors who give parts an address often still mean the whole schema
    const SchemaAt& root = resources_.at("");
    if (const json::value* other = root.value->find_pointer(inside, failure))
      return SchemaAt{other, inside.substr(0, kLongestPointer)};
  }
  if (!value) return at.error(fmt::format("there is nothing at '#{}'", inside.substr(0, 200)), key);
  return SchemaAt{value, (whole.pointer + inside).substr(0, kLongestPointer)};
}

}  // namespace nereid::text
