#include "server/repository/reaper.h"

#include "base/contained.h"

namespace nereid::server {

Reaper::Reaper() {
  for (int i = 0; i < kNumThreads; ++i) {
    threads_.emplace_back([items = items_] {
      while (auto item = items->take()) {
        contained("unloading a model", [&] {
          (*item)->model->take_down();
          (*item)->model.reset();
        });
        contained("unloading a model", [&] { (*item)->gone(); });
      }
    });
  }
}

Reaper::~Reaper() { close(); }

void Reaper::close() {
  items_->close();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

std::shared_ptr<Model> Reaper::adopt(std::unique_ptr<Model> model, std::function<void()> gone) {
  auto item = std::make_shared<Item>(Item{std::move(model), std::move(gone)});
  Model* raw = item->model.get();
  return std::shared_ptr<Model>(raw, [item, items = items_](Model*) mutable {
    // Fails once the reaper is closed; `item` is then the last owner.
    (void)items->push(std::move(item));
  });
}

}  // namespace nereid::server
