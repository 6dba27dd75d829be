#include "server/batching/response_order.h"

namespace nereid::server {

void ResponseOrder::State::flush() {
  while (!places.empty()) {
    const auto place = places.front();
    while (!place->held.empty()) {
      auto [response, flags] = std::move(place->held.front());
      place->held.pop_front();
      place->deliver(std::move(response), flags);
    }
    if (!place->is_over) return;
    places.pop_front();
  }
}

std::shared_ptr<ResponseOrder::Place> ResponseOrder::enter(ResponseContext& context) {
  auto place = std::make_shared<Place>();
  place->deliver = std::move(context.deliver);
  context.deliver = [state = state_, place](std::unique_ptr<InferenceResponse> response,
                                            uint32_t flags) {
    // std::function needs a copyable capture, so the response travels in a shared pointer.
    auto boxed = std::make_shared<std::unique_ptr<InferenceResponse>>(std::move(response));
    state->events.post([state, place, boxed, flags] {
      place->held.emplace_back(std::move(*boxed), flags);
      if ((flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0) place->is_over = true;
      state->flush();
    });
  };
  state_->events.post([state = state_, place] { state->places.push_back(place); });
  return place;
}

void ResponseOrder::leave(const std::shared_ptr<Place>& place) {
  state_->events.post([state = state_, place] {
    place->is_over = true;
    place->held.clear();
    state->flush();
  });
}

}  // namespace nereid::server
