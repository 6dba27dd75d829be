#include "io/pickle.h"
#include "base/copy_bytes.h"

#include <cstring>
#include <limits>
#include <utility>

namespace nereid::io {
namespace {

constexpr size_t kMaxValues = 1'000'000, kMaxPickledDims = 8;

enum class PickleKind : uint8_t {
  kMark,
  kNone,
  kNumber,  // booleans included
  kText,
  kOther,   // ignored: a float, an ordered dictionary's class, ...
  kGlobal,  // text: "module name"
  kTuple,   // items
  kDict,    // number: index in dicts_
  kStorage,
  kTensor,
};

struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  int64_t number = 0;
  std::string_view text;
  uint32_t first = 0, count = 0;  // of a tuple's, storage's or tensor's items
};

using PickleId = uint32_t;

constexpr std::string_view kTensorGlobal = "torch._utils _rebuild_tensor_v2";
constexpr std::string_view kParameterGlobal = "torch._utils _rebuild_parameter";
constexpr std::string_view kDictGlobal = "collections OrderedDict";

class Unpickler {
 public:
  explicit Unpickler(std::span<const std::byte> bytes)
      : text_(reinterpret_cast<const char*>(bytes.data()), bytes.size()) {}

  StatusOr<PickledFile> run() && {
    while (!stopped_) {
      if (values_.size() > kMaxValues || stack_.size() > kMaxValues || items_.size() > kMaxItems)
        return invalid_argument("pickle: more than {} values", kMaxValues);
      start_ = at_;
      const uint8_t op = number<uint8_t>();
      if (is_cut_) break;
      RETURN_IF_ERROR(step(op));
      if (is_cut_) break;
    }
    if (is_cut_) return invalid_argument("pickle: ends within the opcode at byte {}", start_);
    PickledFile out;
    if (stack_.size() == 1 && top().kind == PickleKind::kDict) {
      RETURN_IF_ERROR(read_dict("", top(), out));
      return out;
    }
    if (stack_.size() != 1 || top().kind != PickleKind::kTensor)
      return invalid_argument("pickle: is not one dictionary of tensors, nor one tensor");
    ASSIGN_OR_RETURN(out.tensors.emplace_back(), tensor("", top()));
    return out;
  }

 private:
  static constexpr size_t kMaxItems = 8 * kMaxValues;

  template <class T>
  T number() {
    T value{};
    const std::string_view bytes = take(sizeof value);
    if (!is_cut_) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string_view take(uint64_t count) {
    is_cut_ |= count > text_.size() - at_;
    if (is_cut_) return {};
    const std::string_view bytes = text_.substr(at_, count);
    at_ += count;
    return bytes;
  }
  std::string_view line() {
    const size_t end = text_.find('\n', at_);
    if (end == text_.npos) {
      is_cut_ = true;
      return {};
    }
    const std::string_view found = text_.substr(at_, end - at_);
    at_ = end + 1;
    return found;
  }
  const PickleValue& top() const { return values_[stack_.back()]; }
  Status bad(std::string_view what) const {
    return invalid_argument("pickle: byte {}: {}", start_, what);
  }

  PickleId add(PickleValue value) {
    values_.push_back(std::move(value));
    return static_cast<PickleId>(values_.size() - 1);
  }
  Status push(PickleValue value) {
    stack_.push_back(add(std::move(value)));
    return ok();
  }
  Status push_text(std::string_view text) {
    return push({.kind = PickleKind::kText, .text = text});
  }
  Status push_number(int64_t value) { return push({.kind = PickleKind::kNumber, .number = value}); }
  Status push_dict() {
    dicts_.emplace_back();
    return push({.kind = PickleKind::kDict, .number = static_cast<int64_t>(dicts_.size() - 1)});
  }

  // The top `count` stack values become items.
  PickleValue group(PickleKind kind, size_t count) {
    PickleValue value{.kind = kind};
    value.first = static_cast<uint32_t>(items_.size());
    value.count = static_cast<uint32_t>(count);
    items_.insert(items_.end(), stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return value;
  }
  Status tuple(size_t count) {
    if (stack_.size() < count) return bad("a tuple of more than there is");
    return push(group(PickleKind::kTuple, count));
  }
  // Number of values above the last mark, which is removed.
  StatusOr<size_t> above_mark() {
    for (size_t i = stack_.size(); i-- > 0;)
      if (values_[stack_[i]].kind == PickleKind::kMark) {
        stack_.erase(stack_.begin() + static_cast<ptrdiff_t>(i));
        return stack_.size() - i;
      }
    return bad("a mark is missing");
  }
  const PickleValue* item(const PickleValue& value, size_t i) const {
    return i < value.count ? &values_[items_[value.first + i]] : nullptr;
  }

  Status set_items(size_t count) {
    if (stack_.size() < count + 1 || count % 2 != 0) return bad("items of no dictionary");
    const PickleValue& dict = values_[stack_[stack_.size() - count - 1]];
    if (dict.kind != PickleKind::kDict) return bad("items of no dictionary");
    auto& pairs = dicts_[static_cast<size_t>(dict.number)];
    for (size_t i = stack_.size() - count; i < stack_.size(); i += 2)
      pairs.emplace_back(stack_[i], stack_[i + 1]);
    num_pairs_ += count / 2;
    if (num_pairs_ > kMaxValues) return bad("too many items");
    stack_.resize(stack_.size() - count);
    return ok();
  }

  Status push_global(std::string_view module, std::string_view name) {
    for (const std::string_view known : {kTensorGlobal, kParameterGlobal, kDictGlobal}) {
      const size_t space = known.find(' ');
      if (module == known.substr(0, space) && name == known.substr(space + 1))
        return push({.kind = PickleKind::kGlobal, .text = known});
    }
    if (module == "torch" && name.ends_with("Storage"))
      return push({.kind = PickleKind::kGlobal, .text = name});
    return bad(fmt::format("global '{} {}' is not allowed in a file of tensors",
                           module.substr(0, 60), name.substr(0, 60)));
  }

  // ('storage', class, key, device, elements)
  Status persistent() {
    if (stack_.empty() || top().kind != PickleKind::kTuple) return bad("an id that is no tuple");
    const PickleValue id = top();
    const PickleValue *word = item(id, 0), *type = item(id, 1), *key = item(id, 2);
    if (id.count != 5 || word->kind != PickleKind::kText || word->text != "storage" ||
        type->kind != PickleKind::kGlobal || !type->text.ends_with("Storage") ||
        key->kind != PickleKind::kText)
      return bad("an id that is no storage");
    PickleValue storage = id;
    storage.kind = PickleKind::kStorage;
    stack_.pop_back();
    return push(storage);
  }

  Status reduce() {
    if (stack_.size() < 2) return bad("a call without arguments");
    const PickleValue arguments = top(), function = values_[stack_[stack_.size() - 2]];
    if (function.kind != PickleKind::kGlobal || arguments.kind != PickleKind::kTuple)
      return bad("a call of no function");
    stack_.resize(stack_.size() - 2);
    if (function.text == kDictGlobal) {
      if (arguments.count != 0) return bad("an OrderedDict with arguments");
      return push_dict();
    }
    if (function.text == kTensorGlobal) {
      PickleValue tensor = arguments;
      tensor.kind = PickleKind::kTensor;
      return push(tensor);
    }
    const PickleValue* data = item(arguments, 0);
    if (function.text == kParameterGlobal && data && data->kind == PickleKind::kTensor)
      return push(*data);
    return bad("a call of no function");
  }

  Status long_number(size_t bytes) {
    if (bytes > 8) return bad("an integer of more than 64 bits");
    const std::string_view digits = take(bytes);
    int64_t value = !digits.empty() && static_cast<int8_t>(digits.back()) < 0 ? -1 : 0;
    copy_bytes(&value, digits.data(), digits.size());
    return push_number(value);
  }

  Status remember(uint64_t index) {
    if (stack_.empty() || index > kMaxValues) return bad("a memo of nothing, or too far");
    if (memo_.size() <= index) memo_.resize(index + 1, kNoValue);
    memo_[index] = stack_.back();
    return ok();
  }
  Status recall(uint64_t index) {
    if (index >= memo_.size() || memo_[index] == kNoValue) return bad("an empty memo");
    stack_.push_back(memo_[index]);
    return ok();
  }

  Status build() {  // ignored: attributes such as _metadata
    if (stack_.size() < 2) return bad("attributes of nothing");
    stack_.pop_back();
    return ok();
  }
  Status pop() {
    if (stack_.empty()) return bad("nothing is there");
    stack_.pop_back();
    return ok();
  }

  Status step(uint8_t op);
  Status step_text(uint8_t op);
  Status step_group(uint8_t op);

  // `group`: the key of an inner dictionary; "": the outermost one.
  Status read_dict(std::string_view group, const PickleValue& dict, PickledFile& out) const;
  StatusOr<PickledTensor> tensor(std::string_view name, const PickleValue& value) const;
  bool sizes(const PickleValue* tuple, std::vector<int64_t>& out) const;

  static constexpr PickleId kNoValue = std::numeric_limits<PickleId>::max();
  const std::string_view text_;
  size_t at_ = 0, start_ = 0;
  bool is_cut_ = false, stopped_ = false;
  std::vector<PickleValue> values_;
  std::vector<PickleId> stack_, items_, memo_;
  std::vector<std::vector<std::pair<PickleId, PickleId>>> dicts_;
  size_t num_pairs_ = 0;
};

Status Unpickler::step(uint8_t op) {
  switch (op) {
    case 0x80:  // PROTO
      number<uint8_t>();
      return ok();
    case 0x95:  // FRAME
      number<uint64_t>();
      return ok();
    case '.':
      stopped_ = true;
      return ok();
    case 'N':
      return push({});
    case 0x88:
      return push_number(1);
    case 0x89:
      return push_number(0);
    case 'J':
      return push_number(number<int32_t>());
    case 'K':
      return push_number(number<uint8_t>());
    case 'M':
      return push_number(number<uint16_t>());
    case 0x8a:
      return long_number(number<uint8_t>());
    case 'G':
      take(8);
      return push({.kind = PickleKind::kOther});
    case 'q':
      return remember(number<uint8_t>());
    case 'r':
      return remember(number<uint32_t>());
    case 0x94:  // MEMOIZE
      return remember(memo_.size());
    case 'h':
      return recall(number<uint8_t>());
    case 'j':
      return recall(number<uint32_t>());
    case '0':
      return pop();
    default:
      return step_text(op);
  }
}

Status Unpickler::step_text(uint8_t op) {
  switch (op) {
    case 'X':
      return push_text(take(number<uint32_t>()));
    case 0x8c:
      return push_text(take(number<uint8_t>()));
    case 'c': {
      const std::string_view module = line(), name = line();
      return is_cut_ ? ok() : push_global(module, name);
    }
    case 0x93: {  // STACK_GLOBAL
      if (stack_.size() < 2) return bad("a global without a name");
      const PickleValue name = top(), module = values_[stack_[stack_.size() - 2]];
      stack_.resize(stack_.size() - 2);
      if (name.kind != PickleKind::kText || module.kind != PickleKind::kText)
        return bad("a global of no text");
      return push_global(module.text, name.text);
    }
    default:
      return step_group(op);
  }
}

Status Unpickler::step_group(uint8_t op) {
  switch (op) {
    case '(':
      return push({.kind = PickleKind::kMark});
    case ')':
      return tuple(0);
    case 0x85:
    case 0x86:
    case 0x87:
      return tuple(op - 0x84u);
    case 't': {
      ASSIGN_OR_RETURN(const size_t count, above_mark());
      return tuple(count);
    }
    case '}':
      return push_dict();
    case 's':
      return set_items(2);
    case 'u': {
      ASSIGN_OR_RETURN(const size_t count, above_mark());
      return set_items(count);
    }
    case 'Q':
      return persistent();
    case 'R':
      return reduce();
    case 'b':
      return build();
    default:
      return bad(fmt::format("opcode 0x{:02x} is not allowed in a file of tensors", op));
  }
}

bool Unpickler::sizes(const PickleValue* tuple, std::vector<int64_t>& out) const {
  if (!tuple || tuple->kind != PickleKind::kTuple || tuple->count > kMaxPickledDims) return false;
  for (size_t i = 0; i < tuple->count; ++i) {
    const PickleValue* size = item(*tuple, i);
    if (size->kind != PickleKind::kNumber || size->number < 0) return false;
    out.push_back(size->number);
  }
  return true;
}

// (storage, offset, shape, stride, ...)
StatusOr<PickledTensor> Unpickler::tensor(std::string_view name, const PickleValue& value) const {
  PickledTensor out{.name = name};
  const PickleValue *storage = item(value, 0), *offset = item(value, 1);
  if (value.kind != PickleKind::kTensor || value.count < 4 ||
      storage->kind != PickleKind::kStorage || offset->kind != PickleKind::kNumber ||
      offset->number < 0 || !sizes(item(value, 2), out.shape) ||
      !sizes(item(value, 3), out.stride) || out.shape.size() != out.stride.size())
    return invalid_argument("pickle: '{}' is not a tensor", name.substr(0, 200));
  out.storage_type = item(*storage, 1)->text;
  out.storage = item(*storage, 2)->text;
  out.offset = offset->number;
  return out;
}

Status Unpickler::read_dict(std::string_view group, const PickleValue& dict,
                            PickledFile& out) const {
  for (const auto& [key, id] : dicts_[static_cast<size_t>(dict.number)]) {
    if (values_[key].kind != PickleKind::kText)
      return invalid_argument("pickle: a key is not text");
    const std::string_view name = values_[key].text;
    const PickleValue& value = values_[id];
    if (value.kind == PickleKind::kDict && group.empty() && !name.empty()) {
      RETURN_IF_ERROR(read_dict(name, value, out));
    } else if (value.kind == PickleKind::kNumber && !group.empty()) {
      out.numbers.push_back({group, name, value.number});
    } else {
      ASSIGN_OR_RETURN(out.tensors.emplace_back(), tensor(name, value));
      out.tensors.back().group = group;
    }
    if (out.tensors.size() + out.numbers.size() > kMaxValues)
      return invalid_argument("pickle: more than {} values", kMaxValues);
  }
  return ok();
}

}  // namespace

StatusOr<PickledFile> parse_pickled_file(std::span<const std::byte> pickle) {
  return Unpickler(pickle).run();
}

}  // namespace nereid::io
