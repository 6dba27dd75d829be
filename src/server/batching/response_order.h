// Preserves order: responses of a model are sent in the order in which its requests arrived.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "base/serial.h"
#include "server/request/request.h"
#include "server/request/response.h"

namespace nereid::server {

class ResponseOrder {
 public:
  struct Place {
    bool is_over = false;
    std::deque<std::pair<std::unique_ptr<InferenceResponse>, uint32_t>> held;
    std::function<void(std::unique_ptr<InferenceResponse>, uint32_t)> deliver;
  };
  // Adds the request of `context` to the order: its responses wait for those of earlier requests.
  std::shared_ptr<Place> enter(ResponseContext& context);
  // Removes a request that was refused.
  void leave(const std::shared_ptr<Place>& place);

 private:
  // Outlives the model: a response may come late.
  struct State {
    SerialEvents events;
    std::deque<std::shared_ptr<Place>> places;  // accessed by events only
    void flush();
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace nereid::server
