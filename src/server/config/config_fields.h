// A parsed ModelConfig message with the positions of its fields, and its conversion to plain data.
// Internal to the configuration reader: only these files include protobuf.
#pragma once

#include <google/protobuf/text_format.h>

#include <string>
#include <utility>

#include "base/status.h"
#include "server/config/model_config.h"
#include "server/config/model_config.pb.h"

namespace nereid::server {

struct Parsed {
  inference::ModelConfig config;
  google::protobuf::TextFormat::ParseInfoTree places;
  std::string path;  // empty: a load override
  UsableGpus gpus;
  bool is_given = true;

  // " (<path>:<line>)" of top-level field `name`, " (<path>)" when it is absent, "" without a path.
  std::string where(const char* name, int index = -1) const;

  // InvalidArgument: "<text> for <model><place>".
  template <class... Args>
  Status wrong(const std::string& place, fmt::format_string<Args...> text, Args&&... args) const {
    return invalid_argument("{} for {}{}", fmt::format(text, std::forward<Args>(args)...),
                            config.name(), place);
  }
};

// Fills everything but `json` and `proto` of `out`, and validates. Errors in tensors and instance
// groups go to out.tensor_problem and out.group_problem.
Status fill_config(const Parsed& parsed, ModelConfig& out);

// The part of fill_config() for instance groups, which must be normalised, and for batch_input and
// batch_output, which are only checked: backends read them from the JSON. Needs out.name.
Status fill_groups(const Parsed& parsed, ModelConfig& out);
Status check_batch_tensors(const Parsed& parsed, const ModelConfig& out);

// Adds a default group where there is none; fills in names, counts, kinds and GPUs that
// follow from the others.
void normalise_groups(const UsableGpus& gpus, inference::ModelConfig& config);

// Adds the backend's preferred group to a model that names none.
void add_preferred_group(const std::vector<PreferredGroup>& preferred, const UsableGpus& gpus,
                         inference::ModelConfig& config);

// The part of fill_config() for sequence_batching. Needs out.name and out.max_batch_size.
Status fill_sequences(const Parsed& parsed, ModelConfig& out);

}  // namespace nereid::server
