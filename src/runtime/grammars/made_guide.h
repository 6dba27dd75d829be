// Test only: a guide, awaited.
#pragma once

#include <future>
#include <memory>

#include "runtime/grammars/grammars.h"

namespace nereid::runtime {

inline StatusOr<std::shared_ptr<text::OutputConstraint>> made_guide(Grammars& grammars,
                                                                    const Request& request) {
  ASSIGN_OR_RETURN(const Grammars::Order order, grammars.order(request));
  if (!order.waiter) return order.guide;
  std::promise<Status> made;
  grammars.start(order, [&](const Status& status) { made.set_value(status); });
  RETURN_IF_ERROR(made.get_future().get());
  return order.guide;
}

}  // namespace nereid::runtime
