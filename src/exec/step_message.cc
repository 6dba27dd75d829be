// Message layout: a header with the counts, then the arrays, each 8-byte aligned.
#include "exec/step_message.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "base/copy_bytes.h"
#include "base/round_up.h"

namespace nereid::exec {
namespace {

// Kind of message; a wrong byte order changes it.
constexpr uint32_t kStepMagic = 0x70657473u;  // "step"
constexpr uint32_t kMaskMagic = 0x6b73616du;  // "mask"
constexpr uint32_t kVersion = 17;             // incremented with every change of a struct or array
constexpr size_t kArrayAlignment = 8;

template <class Arrays>
struct Header {
  uint32_t magic = 0;
  uint32_t version = kVersion;
  std::array<int64_t, std::tuple_size_v<decltype(Arrays().all())>> counts{};
};

template <class T>
constexpr bool kIsPlain = std::is_trivially_copyable_v<T> && alignof(T) <= kArrayAlignment;

template <class Arrays>
void clear_all(Arrays& arrays) {
  std::apply([](auto&... array) { (array.clear(), ...); }, arrays.all());
}

template <class Arrays>
void encode_arrays(const Arrays& arrays, uint32_t magic, std::vector<std::byte>& message) {
  Header<Arrays> header{.magic = magic};
  static_assert(sizeof(header) % kArrayAlignment == 0);
  size_t bytes = sizeof(header), index = 0;
  const auto count = [&](const auto& array) {
    header.counts[index++] = static_cast<int64_t>(array.size());
    bytes = round_up(bytes, kArrayAlignment) + array.size() * sizeof(array[0]);
  };
  std::apply([&](const auto&... array) { (count(array), ...); }, arrays.all());
  message.resize(bytes);
  std::memcpy(message.data(), &header, sizeof(header));
  bytes = sizeof(header);
  const auto write = [&](const auto& array) {
    static_assert(kIsPlain<std::decay_t<decltype(array[0])>>);
    bytes = round_up(bytes, kArrayAlignment);
    copy_bytes(message.data() + bytes, array.data(), array.size() * sizeof(array[0]));
    bytes += array.size() * sizeof(array[0]);
  };
  std::apply([&](const auto&... array) { (write(array), ...); }, arrays.all());
}

// `what`: in errors.
template <class Arrays>
StatusOr<Arrays> decode_arrays(std::span<const std::byte> message, uint32_t magic,
                               std::string_view what) {
  Header<Arrays> header;
  if (message.size() < sizeof(header))
    return invalid_argument("a message of {} of {} bytes; its header alone has {}", what,
                            message.size(), sizeof(header));
  if (reinterpret_cast<uintptr_t>(message.data()) % kArrayAlignment != 0)
    return invalid_argument("a message of {} at an address that is not a multiple of {}", what,
                            kArrayAlignment);
  std::memcpy(&header, message.data(), sizeof(header));
  if (header.magic != magic || header.version != kVersion)
    return invalid_argument(
        "a message of kind {:#x}, version {} is not a message of {}: kind {:#x}, version {}",
        header.magic, header.version, what, magic, kVersion);
  Arrays arrays;
  size_t bytes = sizeof(header), index = 0;
  bool fits = true;
  const auto read = [&]<class T>(std::span<const T>& array) {
    static_assert(kIsPlain<T>);
    const int64_t count = header.counts[index++];
    bytes = round_up(bytes, kArrayAlignment);
    const auto size = static_cast<size_t>(std::max<int64_t>(count, 0));
    fits = fits && count >= 0 && bytes <= message.size() &&
           size <= (message.size() - bytes) / sizeof(T);
    if (!fits) return;
    if (size > 0) array = {reinterpret_cast<const T*>(message.data() + bytes), size};
    bytes += size * sizeof(T);
  };
  std::apply([&](auto&... array) { (read(array), ...); }, arrays.all());
  if (!fits || bytes != message.size())
    return invalid_argument("a message of {} of {} bytes does not hold what its counts say: {}",
                            what, message.size(), fmt::join(header.counts, ", "));
  return arrays;
}

}  // namespace

void StepMessage::clear() { clear_all(*this); }
void Masks::clear() { clear_all(*this); }

void StepMessage::add(StepRow row, std::span<const int32_t> row_tokens,
                      const PerGroup<std::span<const int32_t>>& tables, size_t num_groups,
                      int32_t block_tokens) {
  row.num_tokens = static_cast<int32_t>(row_tokens.size());
  rows.push_back(row);
  tokens.insert(tokens.end(), row_tokens.begin(), row_tokens.end());
  const auto count = static_cast<size_t>(num_blocks_for(row.end(), block_tokens));
  for (size_t g = 0; g < num_groups; ++g) {
    NEREID_CHECK(tables[g].size() >= count);
    blocks.insert(blocks.end(), tables[g].begin(),
                  tables[g].begin() + static_cast<ptrdiff_t>(count));
  }
}

void encode(const StepMessage& step, std::vector<std::byte>& message) {
  encode_arrays<StepArrays<StepVector>>(step, kStepMagic, message);
}

void encode(const Masks& masks, std::vector<std::byte>& message) {
  encode_arrays<MaskArrays<StepVector>>(masks, kMaskMagic, message);
}

StatusOr<StepMessageView> decode(std::span<const std::byte> message) {
  return decode_arrays<StepMessageView>(message, kStepMagic, "a step");
}

StatusOr<MaskView> decode_masks(std::span<const std::byte> message) {
  return decode_arrays<MaskView>(message, kMaskMagic, "masks");
}

}  // namespace nereid::exec
