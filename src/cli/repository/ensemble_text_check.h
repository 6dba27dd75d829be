// Checks between the models of a repository: what an ensemble's steps refer to.
#pragma once

#include <map>
#include <string>

#include "cli/repository/text_config.h"

namespace nereid::cli {

struct TextModel {
  std::string path;  // of config.pbtxt
  TextField config;
};
using TextModels = std::map<std::string, TextModel>;

// Nothing for a model that is no ensemble. `report` gets the place in its config.pbtxt.
void check_ensemble_text(const std::string& name, const TextModels& models, const Report& report);

}  // namespace nereid::cli
