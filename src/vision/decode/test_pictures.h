// The pictures of tests/pictures and their golden pixels (tests/golden/pictures.py).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/json_members.h"
#include "base/testing/source_dir.h"
#include "vision/decode/image.h"

namespace nereid::vision::testing_only {

inline std::string picture_file(std::string_view name) {
  return *read_file(source_dir() + "/tests/pictures/" + std::string(name));
}

struct GoldenPicture {
  std::string name;
  Image image;          // the decoded pixels
  json::object values;  // by processor: grid, width, crc
};

inline std::vector<GoldenPicture> golden_pictures() {
  const std::string base = source_dir() + "/tests/golden/pictures";
  const json::value list = *read_json_file(base + ".json");
  const std::string pixels = *read_file(base + ".bin");
  std::vector<GoldenPicture> out;
  for (const json::value& item : list.get_array()) {
    GoldenPicture& picture = out.emplace_back();
    picture.name = text_member(item, "name");
    picture.image.width = static_cast<int32_t>(integer_member(item, "width"));
    picture.image.height = static_cast<int32_t>(integer_member(item, "height"));
    const auto at = static_cast<size_t>(integer_member(item, "at"));
    const auto size = 3 * static_cast<size_t>(picture.image.width * picture.image.height);
    const std::string_view bytes = std::string_view(pixels).substr(at, size);
    picture.image.rgb.assign(bytes.begin(), bytes.end());
    picture.values = item.get_object();
  }
  return out;
}

}  // namespace nereid::vision::testing_only
