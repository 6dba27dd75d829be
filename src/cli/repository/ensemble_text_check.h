// Checks between the models of a repository: the references of an ensemble's steps.
#pragma once

#include <map>
#include <string>

#include "cli/repository/text_config.h"

namespace nereid::cli {

struct TextModel {
  std::string path;  // path of config.pbtxt
  TextField config;
};
using TextModels = std::map<std::string, TextModel>;

// Checks an ensemble; other models pass. `report` gets the line in its config.pbtxt.
void check_ensemble_text(const std::string& name, const TextModels& models, const Report& report);

}  // namespace nereid::cli
