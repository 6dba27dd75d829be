// Ensembles: a data flow over other models. A step runs as soon as its input tensors exist; a
// decoupled step forks the flow once per response, and the ensemble's responses are sent in the
// order of the forks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/model/model.h"

namespace nereid::server {

class EnsembleModel : public Model {
 public:
  using Model::Model;

  // `models` is parallel to config().steps; InvalidArgument when tensors or batch
  // sizes do not match.
  Status load(std::vector<std::shared_ptr<Model>> models);

  bool calls_models() const override { return true; }
  bool decoupled() const override { return decoupled_; }

  // One end of a tensor, by index of its name.
  struct Link {
    std::string name;  // name of the composing model's input or output
    size_t tensor = 0;
    const TensorSpec* spec = nullptr;  // spec in the composing model's configuration
  };
  struct Step {
    std::shared_ptr<Model> model;
    std::vector<Link> inputs, outputs;
    std::vector<const TensorSpec*> wanted;  // requested outputs, by name
  };
  struct Plan {
    std::vector<Step> steps;
    std::vector<std::string> tensors;
    std::vector<int> producer;  // step that writes the tensor; -1 = input of the ensemble
    size_t num_inputs = 0;  // tensors [0, num_inputs) are the ensemble's inputs, in config order
    std::vector<size_t> outputs;  // indices of the ensemble's outputs, in config order
  };
  const Plan& plan() const { return plan_; }

 protected:
  Status accept(InferenceRequest* request,
                const std::shared_ptr<ResponseContext>& context) override;
  void unload() override { plan_ = {}; }

 private:
  Plan plan_;
  bool decoupled_ = false;
};

}  // namespace nereid::server
