// A long text sent to a client, made in parts.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "front/http/workers.h"

namespace nereid::front {

// Bytes of a part.
inline constexpr size_t kPartBytes = size_t{512} << 10;

struct Part {
  std::string text;
  bool is_last = true;
  Response head;  // response head, of the first part
};

// Makes each part on a worker after the client has read the previous one, so that a client that
// does not read costs one part. On the exchange's strand, except for `make`.
class Parts : public std::enable_shared_from_this<Parts> {
 public:
  using Make = std::function<Part()>;
  using Take = std::function<void(Part)>;  // writes the part

  Parts(ExchangePtr exchange, Workers& workers)
      : exchange_(std::move(exchange)), workers_(workers) {}

  // Starts a text; the last part of the previous one has been taken.
  void start(Make make, Take take) {
    make_ = std::move(make);
    take_ = std::move(take);
    run();
  }
  // True between two parts of a text.
  bool is_half_written() const { return is_half_written_; }
  // Makes no more parts and drops both functions, which may own this.
  void stop() {
    is_half_written_ = false;
    make_ = nullptr;
    take_ = nullptr;
  }

 private:
  void run() {
    workers_.run(exchange_, false, make_,
                 [self = shared_from_this()](Part part) { self->take(part); });
  }

  void take(Part& part) {
    if (!take_) return;  // stopped meanwhile
    if (!part.is_last && !std::exchange(is_told_, true)) {
      exchange_->on_written([weak = weak_from_this()](uint64_t, uint64_t) {
        const auto self = weak.lock();
        if (self != nullptr && std::exchange(self->is_half_written_, false)) self->run();
      });
    }
    is_half_written_ = !part.is_last;
    const Take take = part.is_last ? std::exchange(take_, nullptr) : take_;
    if (part.is_last) make_ = nullptr;
    take(std::move(part));
  }

  const ExchangePtr exchange_;
  Workers& workers_;
  Make make_;
  Take take_;
  bool is_half_written_ = false;
  bool is_told_ = false;  // on_written() is registered
};

}  // namespace nereid::front
