// Lets responses of a model leave in the order in which its requests came.
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
  // Gives the request of `context` the next place: its responses wait for those before it.
  std::shared_ptr<Place> enter(ResponseContext& context);
  // Takes the place back: the request was refused.
  void leave(const std::shared_ptr<Place>& place);

 private:
  // Outlives the model: a response may come late.
  struct State {
    SerialEvents events;
    std::deque<std::shared_ptr<Place>> places;  // touched by events only
    void flush();
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace nereid::server
