// Loading of ensembles: names to indices, cross-model checks.
#include "server/ensemble/ensemble.h"

#include <algorithm>
#include <map>

#include "base/json.h"
#include "server/cache/response_cache.h"
#include "server/ensemble/ensemble_check.h"
#include "server/ensemble/ensemble_run.h"
#include "server/server.h"

namespace nereid::server {

Status EnsembleModel::load(std::vector<std::shared_ptr<Model>> models) {
  std::vector<const ModelConfig*> configs;
  for (const auto& model : models) configs.push_back(&model->config());
  RETURN_IF_ERROR(check_ensemble_tensors(config(), configs));
  std::map<std::string, size_t> index;
  const auto tensor = [&](const std::string& name) {
    const auto [it, is_new] = index.try_emplace(name, plan_.tensors.size());
    if (is_new) {
      plan_.tensors.push_back(name);
      plan_.producer.push_back(-1);
    }
    return it->second;
  };
  for (const auto& input : config().inputs) tensor(input.name);
  plan_.num_inputs = plan_.tensors.size();
  ClassNames class_names;
  if (Model::class_names() != nullptr) class_names = *Model::class_names();
  for (size_t i = 0; i < models.size(); ++i) {
    const EnsembleStep& from = config().steps[i];
    Step step;
    step.model = models[i];
    decoupled_ = decoupled_ || models[i]->decoupled();
    for (const auto& [name, t] : from.input_map)
      step.inputs.push_back({name, tensor(t), configs[i]->input(name)});
    for (const auto& [name, t] : from.output_map) {
      step.outputs.push_back({name, tensor(t), configs[i]->output(name)});
      step.wanted.push_back(step.outputs.back().spec);
      plan_.producer[step.outputs.back().tensor] = static_cast<int>(i);
    }
    // An output without class names takes those of the step that writes it.
    if (const auto& theirs = models[i]->class_names(); theirs != nullptr) {
      for (const auto& [name, t] : from.output_map) {
        const auto found = theirs->find(name);
        if (found != theirs->end()) class_names.try_emplace(t, found->second);
      }
    }
    std::sort(step.wanted.begin(), step.wanted.end(), by_name);
    plan_.steps.push_back(std::move(step));
  }
  set_class_names(std::move(class_names));
  if (decoupled_ && config().response_cache) {
    return invalid_argument(
        "Response Cache does not currently support ensemble {} with a decoupled step. Please "
        "disable the response cache.",
        config().name);
  }
  for (const auto& output : config().outputs) plan_.outputs.push_back(tensor(output.name));
  // The steps decide the response count; clients read it in the configuration.
  ModelConfig shown = config();
  ASSIGN_OR_RETURN(json::value text, parse_json(shown.json));
  text.as_object()["model_transaction_policy"] = json::object{{"decoupled", decoupled_}};
  shown.json = json::serialize(text);
  shown.decoupled = decoupled_;
  set_config(std::move(shown));
  return ok();
}

Status EnsembleModel::accept(InferenceRequest* request,
                             const std::shared_ptr<ResponseContext>& context) {
  request->report_queued();
  if (config().response_cache && server()->cache() != nullptr &&
      answer_from_cache(*server()->cache(), request, context)) {
    return ok();
  }
  std::make_shared<EnsembleRun>(*this, request, context)->start();
  return ok();
}

}  // namespace nereid::server
