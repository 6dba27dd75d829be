// Test only: PyTorch files equivalent to torch.save({name: tensor}).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint.h"

namespace nereid::io::testing_only {

inline std::string number(uint64_t value, size_t bytes) {
  std::string out(bytes, '\0');
  std::memcpy(out.data(), &value, std::min(bytes, sizeof value));
  return out;
}

// A zip archive of stored files.
inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string out, directory;
  for (const auto& [name, data] : files) {
    const std::string sizes =
        number(data.size(), 4) + number(data.size(), 4) + number(name.size(), 2) + number(0, 2);
    directory += number(0x02014b50, 4) + number(0, 16) + sizes + number(0, 10) +
                 number(out.size(), 4) + name;
    out += number(0x04034b50, 4) + number(0, 14) + sizes + name + data;
  }
  const std::string counts = number(files.size(), 2) + number(files.size(), 2);
  return out + directory + number(0x06054b50, 4) + number(0, 4) + counts +
         number(directory.size(), 4) + number(out.size(), 4) + number(0, 2);
}

inline std::string text(const std::string& word) { return "X" + number(word.size(), 4) + word; }
inline std::string integer(int64_t value) { return "J" + number(static_cast<uint64_t>(value), 4); }

inline std::string tuple_of(const std::vector<int64_t>& numbers) {
  std::string out = "(";
  for (const int64_t value : numbers) out += integer(value);
  return out + "t";
}

inline std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> out(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) out[i - 1] = out[i] * shape[i];
  return out;
}

// A dictionary value.
inline std::string tensor_value(const std::string& storage_type, const std::string& storage,
                                int64_t offset, const std::vector<int64_t>& shape,
                                const std::vector<int64_t>& strides) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\n" + storage_type +
         "\n" + text(storage) + text("cpu") + integer(1) + "tQ" + integer(offset) +
         tuple_of(shape) + tuple_of(strides) + "\x89" + "ccollections\nOrderedDict\n)RtR";
}

inline std::string pickled_tensor(const std::string& name, const std::string& storage_type,
                                  const std::string& storage, int64_t offset,
                                  const std::vector<int64_t>& shape,
                                  const std::vector<int64_t>& strides) {
  return text(name) + tensor_value(storage_type, storage, offset, shape, strides);
}

inline std::string torch_pickle(const std::string& items) {
  return std::string("\x80\x02", 2) + "ccollections\nOrderedDict\n)Rq" + number(0, 1) + "(" +
         items + "u}" + text("_metadata") + "Nsb.";
}

inline std::string storage_type_of(const StoredTensor& tensor) {
  return tensor.dtype == "F32"   ? "FloatStorage"
         : tensor.dtype == "F16" ? "HalfStorage"
                                 : "BFloat16Storage";
}

// Bytes of torch.save(tensor).
inline std::string serialize_torch_tensor(const StoredTensor& tensor) {
  const std::string value =
      tensor_value(storage_type_of(tensor), "0", 0, tensor.shape, strides_of(tensor.shape));
  return zip_of({{"archive/data.pkl", std::string("\x80\x02", 2) + value + "."},
                 {"archive/data/0", std::string(reinterpret_cast<const char*>(tensor.data.data()),
                                                tensor.data.size())},
                 {"archive/byteorder", "little"}});
}

inline std::string serialize_torch_file(std::span<const StoredTensor> tensors) {
  std::vector<std::pair<std::string, std::string>> files = {{"archive/data.pkl", ""}};
  std::string items;
  for (const StoredTensor& tensor : tensors) {
    const std::string storage = std::to_string(files.size() - 1);
    items += pickled_tensor(tensor.name, storage_type_of(tensor), storage, 0, tensor.shape,
                            strides_of(tensor.shape));
    files.emplace_back(
        "archive/data/" + storage,
        std::string(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()));
  }
  files[0].second = torch_pickle(items);
  files.emplace_back("archive/byteorder", "little");
  return zip_of(files);
}

}  // namespace nereid::io::testing_only
