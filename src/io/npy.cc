#include "io/npy.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "base/round_up.h"

namespace nereid::io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

// The text behind "'key':" to the end of the header.
StatusOr<std::string_view> value_of_key(std::string_view header, std::string_view key) {
  const std::string quoted = fmt::format("'{}'", key);
  const size_t at = header.find(quoted);
  const size_t colon = at == std::string_view::npos ? at : header.find(':', at + quoted.size());
  if (colon == std::string_view::npos) return invalid_argument("the header has no {}", quoted);
  const size_t begin = header.find_first_not_of(' ', colon + 1);
  return header.substr(std::min(begin, header.size()));
}

// "(1, 42, 8192)".
StatusOr<std::vector<int64_t>> read_shape(std::string_view text) {
  std::vector<int64_t> shape;
  const size_t end = text.find(')');
  if (!text.starts_with('(') || end == std::string_view::npos)
    return invalid_argument("the shape is no tuple");
  text = text.substr(1, end - 1);
  while (text.find_first_not_of(" ,") != std::string_view::npos) {
    text.remove_prefix(text.find_first_not_of(" ,"));
    int64_t size = 0;
    const auto [next, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || size < 0) return invalid_argument("the shape has no number");
    shape.push_back(size);
    text.remove_prefix(static_cast<size_t>(next - text.data()));
  }
  return shape;
}

}  // namespace

std::string serialize_npy(const NpyArray& array) {
  constexpr size_t kPrefix = kMagic.size() + 4, kAlignment = 64;
  std::string shape;
  for (const int64_t size : array.shape) shape += fmt::format("{}, ", size);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", array.type, shape);
  header.resize(round_up(kPrefix + header.size() + 1, kAlignment) - kPrefix - 1, ' ');
  header += '\n';
  std::string file(kMagic);
  file += '\1', file += '\0';
  file += static_cast<char>(header.size() & 0xff), file += static_cast<char>(header.size() >> 8);
  file += header;
  return file.append(reinterpret_cast<const char*>(array.data.data()), array.data.size());
}

StatusOr<NpyArray> parse_npy(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(kMagic) || text.size() < kMagic.size() + 6)
    return invalid_argument("is no array file of NumPy");
  const auto byte = [&](size_t i) { return static_cast<size_t>(file[kMagic.size() + i]); };
  const size_t version = byte(0);
  if (version != 1 && version != 2) return invalid_argument("version {} is not 1 or 2", version);
  size_t length = byte(2) | byte(3) << 8;
  if (version == 2) length |= byte(4) << 16 | byte(5) << 24;
  const size_t begin = kMagic.size() + (version == 1 ? 4 : 6);
  if (length > text.size() - begin) return invalid_argument("the header is cut off");
  const std::string_view header = text.substr(begin, length);
  NpyArray array;
  ASSIGN_OR_RETURN(const std::string_view type, value_of_key(header, "descr"));
  if (type.size() < 5 || type[0] != '\'' || (type[1] != '<' && type[1] != '|') || type[4] != '\'')
    return invalid_argument("the type {} is none of little-endian numbers", type.substr(0, 8));
  array.type = type.substr(1, 3);
  ASSIGN_OR_RETURN(const std::string_view order, value_of_key(header, "fortran_order"));
  if (!order.starts_with("False")) return invalid_argument("the array is not in row-major order");
  ASSIGN_OR_RETURN(const std::string_view shape, value_of_key(header, "shape"));
  ASSIGN_OR_RETURN(array.shape, read_shape(shape));
  array.data = file.subspan(begin + length);
  const auto size = static_cast<size_t>(array.type[2] - '0');
  size_t left = size > 0 && size <= 8 ? array.data.size() / size : 0;
  for (const int64_t n : array.shape) {
    const auto count = static_cast<size_t>(n);
    if (count == 0 || left % count != 0)
      return invalid_argument("{} bytes of data are not what the shape says", array.data.size());
    left /= count;
  }
  if (left != 1 || array.data.size() % size != 0)
    return invalid_argument("{} bytes of data are not what the shape says", array.data.size());
  return array;
}

}  // namespace nereid::io
