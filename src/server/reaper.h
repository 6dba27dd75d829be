// Destroys models on a thread of its own once nobody refers to them: the last reference may go in a
// callback of the very backend that must then be taken down.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "base/queue.h"
#include "server/model.h"

namespace nereid::server {

class Reaper {
 public:
  Reaper();
  ~Reaper();  // close()

  // `model` as a shared pointer whose last owner hands it to the reaper; `gone` runs after its
  // destruction, on the reaper's thread.
  std::shared_ptr<Model> adopt(std::unique_ptr<Model> model, std::function<void()> gone);

  // Destroys what is queued and ends the thread. Models let go later are destroyed by whoever does.
  void close();

 private:
  struct Item {
    std::unique_ptr<Model> model;
    std::function<void()> gone;
  };
  using Items = Queue<std::shared_ptr<Item>>;

  std::shared_ptr<Items> items_ = std::make_shared<Items>();
  std::thread thread_;
};

}  // namespace nereid::server
