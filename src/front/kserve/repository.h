// The model repository extension: index, load, unload.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "front/http/router.h"
#include "front/kserve/routes.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

// The parameters of a load: configuration and files. Their views are valid while the object lives.
class LoadParameters {
 public:
  void add_config(const std::string& json);
  // `key`: "file:<path>". Unimplemented for a shared object unless `allow_code`.
  Status add_file(const std::string& key, std::string content, bool allow_code);
  Status load(TRITONSERVER_Server* server, const std::string& model) const;

 private:
  struct Delete {
    void operator()(TRITONSERVER_Parameter* p) const { TRITONSERVER_ParameterDelete(p); }
  };
  std::list<std::string> files_;
  std::vector<std::unique_ptr<TRITONSERVER_Parameter, Delete>> owned_;
};

// Parses the body of a load request; an empty one has no parameters.
// InvalidArgument names the member.
Status read_load_parameters(const std::string& body, const Extensions& extensions,
                            const std::shared_ptr<ByteBudget>& budget, LoadParameters& out);

// Loads and unloads run on threads of the extensions' queues: they may take minutes.
void add_repository_routes(Router& router, TRITONSERVER_Server* server,
                           const KserveOptionsPtr& options);

}  // namespace nereid::front
