// Replies of a hub (lists of files, indexes of weights) and names of models. No accepted path leads
// out of its folder.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "hub/checksum.h"
#include "hub/listing.h"
#include "hub/model_name.h"

namespace {

using namespace nereid;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_taken(const StatusOr<std::vector<hub::RemoteFile>>& files) {
  if (!files.ok()) return;
  for (const hub::RemoteFile& file : *files) {
    require(hub::kind_of(file.name) != hub::FileKind::kOther);
    require(file.name.front() != '/' && file.name.find('\\') == std::string::npos);
    require(("/" + file.name + "/").find("/../") == std::string::npos);
    require(!file.size || (*file.size >= 0 && *file.size <= hub::kMaxFileBytes));
  }
}

}  // namespace

// The first line is a model's name; the rest is a list, and an index behind a line of dashes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::string_view name = all.substr(0, all.find('\n'));
  std::string_view list = all.substr(std::min(name.size() + 1, all.size())), index;
  if (const size_t at = list.find("\n---\n"); at != list.npos) {
    index = list.substr(at + 5);
    list = list.substr(0, at);
  }
  const auto model = hub::parse_model_name(name);
  if (model.ok()) {
    require(hub::parse_model_name(model->text())->text() == model->text());
    require(model->folder().find('/') == std::string::npos && model->folder().front() != '.');
  }
  static_cast<void>(hub::parse_checksum(name));
  const auto listing = hub::parse_listing(list);
  if (!listing.ok()) return 0;
  check_taken(hub::first_files(*listing, model.value_or(hub::ModelName{"a", "b"})));
  check_taken(hub::weight_files(*listing, index));
  return 0;
}
