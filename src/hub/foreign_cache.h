// The cache of the hub's own tools, which is only read: models--ORG--NAME with refs, blobs and
// snapshots of links into blobs.
#pragma once

#include <optional>
#include <vector>

#include "hub/cache.h"

namespace nereid::hub {

// A model there is taken as complete with config.json, a tokenizer's file and all safetensors that
// its index names (else model.safetensors), or with the .gguf file. Links must stay in the
// model's folder: InvalidArgument names one that does not.
StatusOr<std::optional<CachedModel>> find_foreign(const HubSettings& settings,
                                                  const ModelName& model);

void add_foreign(const HubSettings& settings, std::vector<ListedModel>& out);

}  // namespace nereid::hub
