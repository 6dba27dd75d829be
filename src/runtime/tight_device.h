// Test only: a device with a budget of memory.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "tensor/device.h"

namespace nereid::runtime {

// Refuses allocations, on the host too, that are over what is left of its budget.
class TightDevice : public Device {
 public:
  explicit TightDevice(std::unique_ptr<Device> inner, size_t budget)
      : inner_(std::move(inner)), left_(std::make_shared<std::atomic<size_t>>(budget)) {}

  void set_budget(size_t bytes) { *left_ = bytes; }

  const DeviceInfo& info() const override { return inner_->info(); }
  StatusOr<Buffer> allocate(size_t bytes) override {
    if (bytes > *left_) return resource_exhausted("{} bytes wanted, {} are left", bytes, *left_);
    ASSIGN_OR_RETURN(Buffer buffer, inner_->allocate(bytes));
    *left_ -= bytes;
    auto held = std::make_shared<Buffer>(std::move(buffer));
    void* const data = held->data();
    return Buffer(data, bytes, [held, bytes, left = left_](void*) {
      *held = {};
      *left += bytes;
    });
  }
  StatusOr<Buffer> allocate_host(size_t bytes) override { return allocate(bytes); }
  StatusOr<Buffer> upload(const void* host, size_t bytes) override {
    return inner_->upload(host, bytes);
  }
  StatusOr<std::unique_ptr<Stream>> create_stream() override { return inner_->create_stream(); }
  size_t free_bytes() const override { return *left_; }
  Status failure() const override { return inner_->failure(); }
  void fail(const Status& error) override { inner_->fail(error); }

 private:
  const std::unique_ptr<Device> inner_;
  const std::shared_ptr<std::atomic<size_t>> left_;
};

}  // namespace nereid::runtime
