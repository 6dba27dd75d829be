// Test only: a device library whose CPU device hangs on demand, for tests of whole servers. Work
// does not start while the file $NEREID_HANGING.work exists; a call that submits work does not
// return while $NEREID_HANGING.call exists.
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "kernels/api/plugin.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/ref/ref.h"
#include "tensor/cpu_device.h"
#include "tensor/wrapped_device.h"

namespace nereid::kernels {
namespace {

void wait_while_there(const char* what) {
  const char* const path = std::getenv("NEREID_HANGING");
  if (!path) return;
  while (std::filesystem::exists(std::string(path) + what))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

class HangingStream : public Stream {
 public:
  HangingStream(const Device& device, std::unique_ptr<Stream> inner)
      : device_(device), inner_(std::move(inner)) {}

  const Device& device() const override { return device_; }
  StatusOr<std::unique_ptr<Event>> submit(std::function<Status(Stream&)> work) override {
    wait_while_there(".call");
    return inner_->submit([work = std::move(work)](Stream& stream) {
      wait_while_there(".work");
      return work(stream);
    });
  }
  Status wait(const Event& event) override { return inner_->wait(event); }
  Status copy(void* to, const void* from, size_t n) override { return inner_->copy(to, from, n); }
  Status fill(void* to, int byte, size_t n) override { return inner_->fill(to, byte, n); }
  void* native() override { return inner_->native(); }

 private:
  const Device& device_;
  const std::unique_ptr<Stream> inner_;
};

class HangingDevice : public WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;
  StatusOr<std::unique_ptr<Stream>> create_stream() override {
    ASSIGN_OR_RETURN(auto stream, inner().create_stream());
    return std::make_unique<HangingStream>(*this, std::move(stream));
  }
};

Status open_hanging(int /*index*/, std::unique_ptr<Device>* device) {
  ASSIGN_OR_RETURN(auto cpu, make_cpu_device({.num_threads = 1}));
  *device = std::make_unique<HangingDevice>(std::move(cpu));
  return ok();
}

void add_hanging_kernels(Registry& registry) {
  registry.add_all([]<class Op>() { return cpu::table<Op>(); });
  ref::add_kernels(registry);
}

constexpr DevicePlugin kHangingPlugin = {kDevicePluginVersion, [] { return 1; }, &open_hanging,
                                         &add_hanging_kernels};

}  // namespace
}  // namespace nereid::kernels

extern "C" __attribute__((visibility("default"))) const nereid::kernels::DevicePlugin*
nereid_device_plugin() {
  return &nereid::kernels::kHangingPlugin;
}
