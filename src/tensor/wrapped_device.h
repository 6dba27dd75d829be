// Test only: a device that forwards to another; tests override parts.
#pragma once

#include <memory>
#include <utility>

#include "tensor/device.h"

namespace nereid {

class WrappedDevice : public Device {
 public:
  explicit WrappedDevice(std::unique_ptr<Device> inner)
      : owned_(std::move(inner)), inner_(*owned_) {}
  explicit WrappedDevice(Device& inner) : inner_(inner) {}  // must outlive this

  const DeviceInfo& info() const override { return inner_.info(); }
  StatusOr<Buffer> allocate(size_t bytes) override { return inner_.allocate(bytes); }
  StatusOr<Buffer> allocate_host(size_t bytes) override { return inner_.allocate_host(bytes); }
  StatusOr<Buffer> upload(const void* host, size_t bytes) override {
    return inner_.upload(host, bytes);
  }
  StatusOr<std::unique_ptr<Stream>> create_stream() override { return inner_.create_stream(); }
  size_t free_bytes() const override { return inner_.free_bytes(); }
  Health& health() override { return inner_.health(); }

 protected:
  Device& inner() const { return inner_; }

 private:
  const std::unique_ptr<Device> owned_;  // null: not owned
  Device& inner_;
};

}  // namespace nereid
