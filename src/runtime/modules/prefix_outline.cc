// Step module that outlines the prefix tree for PrefixWatch, when one is asked for.
#include <memory>

#include "runtime/outputs/prefix_watch.h"
#include "runtime/step_modules.h"

namespace nereid::runtime {
namespace {

class PrefixOutline : public StepModule {
 public:
  PrefixOutline(PrefixWatch& watch, const Clock& clock) : watch_(watch), clock_(clock) {}

  bool planned(const sched::StepPlan&, const sched::Scheduler& scheduler,
               exec::StepMessage&) override {
    if (watch_.is_asked()) watch_.put(scheduler.prefix_tree(), clock_.now());
    return false;
  }

 private:
  PrefixWatch& watch_;
  const Clock& clock_;
};

}  // namespace

std::unique_ptr<StepModule> make_prefix_outline(PrefixWatch& watch, const Clock& clock) {
  return std::make_unique<PrefixOutline>(watch, clock);
}

}  // namespace nereid::runtime
