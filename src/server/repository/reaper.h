// Destroys models on threads of its own once nothing refers to them: the last reference may go in a
// callback of the backend whose model it is.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/queue.h"
#include "server/model/model.h"

namespace nereid::server {

class Reaper {
 public:
  Reaper();
  ~Reaper();  // calls close()

  // Returns `model` as a shared pointer whose deleter queues it for the reaper; `gone` runs after
  // its destruction, on a thread of the reaper.
  std::shared_ptr<Model> adopt(std::unique_ptr<Model> model, std::function<void()> gone);

  // Destroys the queued models and ends the threads. A model released later is destroyed by
  // the releasing thread.
  void close();

 private:
  struct Item {
    std::unique_ptr<Model> model;
    std::function<void()> gone;
  };
  using Items = Queue<std::shared_ptr<Item>>;

  // A backend may take a second to finalise a model, and several often go together.
  static constexpr int kNumThreads = 4;

  std::shared_ptr<Items> items_ = std::make_shared<Items>();
  std::vector<std::thread> threads_;
};

}  // namespace nereid::server
