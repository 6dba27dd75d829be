// Test only: a device with a memory budget.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "tensor/wrapped_device.h"

namespace nereid::runtime {

// Refuses device and host allocations beyond the budget.
class TightDevice : public WrappedDevice {
 public:
  TightDevice(std::unique_ptr<Device> device, size_t budget)
      : WrappedDevice(std::move(device)), left_(std::make_shared<std::atomic<size_t>>(budget)) {}

  void set_budget(size_t bytes) { *left_ = bytes; }

  StatusOr<Buffer> allocate(size_t bytes) override {
    if (bytes > *left_) return resource_exhausted("{} bytes wanted, {} are left", bytes, *left_);
    ASSIGN_OR_RETURN(Buffer buffer, inner().allocate(bytes));
    *left_ -= bytes;
    auto held = std::make_shared<Buffer>(std::move(buffer));
    void* const data = held->data();
    return Buffer(data, bytes, [held, bytes, left = left_](void*) {
      *held = {};
      *left += bytes;
    });
  }
  StatusOr<Buffer> allocate_host(size_t bytes) override { return allocate(bytes); }
  size_t free_bytes() const override { return *left_; }

 private:
  const std::shared_ptr<std::atomic<size_t>> left_;
};

}  // namespace nereid::runtime
