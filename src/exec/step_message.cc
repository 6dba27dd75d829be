// Layout of a message: a header with the counts, then the arrays, each at a multiple of 8 bytes.
#include "exec/step_message.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "base/round_up.h"

namespace nereid::exec {
namespace {

constexpr uint32_t kStepMagic = 0x70657473u;  // "step"; also says the order of bytes
constexpr uint32_t kStepVersion = 7;          // raised with every change of a struct or an array
constexpr size_t kArrayAlignment = 8;
constexpr size_t kNumArrays = std::tuple_size_v<decltype(StepView().all())>;

struct StepHeader {
  uint32_t magic = kStepMagic;
  uint32_t version = kStepVersion;
  std::array<int64_t, kNumArrays> counts{};
};
static_assert(sizeof(StepHeader) % kArrayAlignment == 0);

template <class T>
constexpr bool kIsPlain = std::is_trivially_copyable_v<T> && alignof(T) <= kArrayAlignment;

}  // namespace

void Step::clear() {
  std::apply([](auto&... array) { (array.clear(), ...); }, all());
}

void Step::add(StepRow row, std::span<const int32_t> row_tokens,
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

void encode(const Step& step, std::vector<std::byte>& message) {
  StepHeader header;
  size_t bytes = sizeof(header), index = 0;
  const auto count = [&](const auto& array) {
    header.counts[index++] = static_cast<int64_t>(array.size());
    bytes = round_up(bytes, kArrayAlignment) + array.size() * sizeof(array[0]);
  };
  std::apply([&](const auto&... array) { (count(array), ...); }, step.all());
  message.resize(bytes);
  std::memcpy(message.data(), &header, sizeof(header));
  bytes = sizeof(header);
  const auto write = [&](const auto& array) {
    static_assert(kIsPlain<std::decay_t<decltype(array[0])>>);
    bytes = round_up(bytes, kArrayAlignment);
    if (!array.empty()) std::memcpy(&message[bytes], array.data(), array.size() * sizeof(array[0]));
    bytes += array.size() * sizeof(array[0]);
  };
  std::apply([&](const auto&... array) { (write(array), ...); }, step.all());
}

StatusOr<StepView> decode(std::span<const std::byte> message) {
  StepHeader header;
  if (message.size() < sizeof(header))
    return invalid_argument("a step message of {} bytes; its header alone has {}", message.size(),
                            sizeof(header));
  if (reinterpret_cast<uintptr_t>(message.data()) % kArrayAlignment != 0)
    return invalid_argument("a step message at an address that is no multiple of {}",
                            kArrayAlignment);
  std::memcpy(&header, message.data(), sizeof(header));
  if (header.magic != kStepMagic || header.version != kStepVersion)
    return invalid_argument(
        "a step message of kind {:#x}, version {}; only {:#x}, {} is understood", header.magic,
        header.version, kStepMagic, kStepVersion);
  StepView step;
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
  std::apply([&](auto&... array) { (read(array), ...); }, step.all());
  if (!fits || bytes != message.size())
    return invalid_argument("a step message of {} bytes does not hold what its counts say: {}",
                            message.size(), fmt::join(header.counts, ", "));
  return step;
}

}  // namespace nereid::exec
