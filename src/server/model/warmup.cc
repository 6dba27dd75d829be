#include "server/model/warmup.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <tuple>

#include "base/file.h"
#include "base/log.h"
#include "server/api/error.h"
#include "server/memory/host_allocator.h"
#include "server/request/response.h"

namespace nereid::server {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 30;  // of one warm-up input

// Completion of one execution.
struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  size_t num_open = 0;  // finals and releases to come
  Status status;

  void end_one(const Status& s) {
    std::lock_guard lock(mutex);
    if (status.ok()) status = s;
    --num_open;
    changed.notify_all();
  }
};

StatusOr<std::string> data_of(const WarmupInput& input, const std::filesystem::path& model_dir) {
  if (input.data == WarmupInput::Data::kFile) {
    const auto path = model_dir / "warmup" / input.file;
    auto text = read_file(path, kMaxBytes);
    if (!text.ok()) {
      return internal_error("failed to open text file for read {}: No such file or directory",
                            path.string());
    }
    return text;
  }
  double elements = 1;
  for (int64_t d : input.dims) elements *= static_cast<double>(std::max<int64_t>(0, d));
  const bool is_bytes = input.datatype == TRITONSERVER_TYPE_BYTES;
  // An empty string has 4 bytes, its length.
  const uint32_t size = is_bytes ? 4 : TRITONSERVER_DataTypeByteSize(input.datatype);
  if (elements * size > static_cast<double>(kMaxBytes)) {
    return invalid_argument("warm-up input '{}' is larger than {} bytes", input.name, kMaxBytes);
  }
  std::string bytes(static_cast<size_t>(elements) * size, '\0');
  if (input.data == WarmupInput::Data::kRandom && !is_bytes) {
    std::minstd_rand generator(1);
    const bool is_bool = input.datatype == TRITONSERVER_TYPE_BOOL;
    for (char& c : bytes) c = static_cast<char>(is_bool ? generator() & 1 : generator() & 0x7f);
  }
  return bytes;
}

// Whether the sequence batcher adds this input; a sample may override its data.
bool is_of_sequence(const ModelConfig& config, const std::string& input) {
  if (!config.sequences.has_value()) return false;
  const auto& [controls, states] = std::tie(config.sequences->controls, config.sequences->states);
  return std::ranges::any_of(controls, [&](const auto& c) { return c.name == input; }) ||
         std::ranges::any_of(states, [&](const auto& s) { return s.input_name == input; });
}

class Sample {
 public:
  static StatusOr<std::unique_ptr<Sample>> create(const std::shared_ptr<Model>& model,
                                                  const WarmupSample& spec) {
    auto sample = std::make_unique<Sample>();
    for (const auto& input : spec.inputs) {
      ASSIGN_OR_RETURN(std::string bytes, data_of(input, model->dir()));
      const std::string& data = sample->data_.emplace_back(std::move(bytes));
      auto& tensors =
          is_of_sequence(model->config(), input.name) ? sample->of_sequence_ : sample->of_client_;
      tensors.push_back(tensor_of(input, data, model->config().max_batch_size > 0));
    }
    for (uint32_t copy = 0; copy < spec.batch_size; ++copy) {
      auto request = std::make_unique<InferenceRequest>(model);
      request->inputs = sample->of_client_;
      request->allocator = host_allocator();
      request->release_userp = &sample->progress_;
      request->release_fn = [](TRITONSERVER_InferenceRequest*, const uint32_t, void* p) {
        static_cast<Progress*>(p)->end_one(ok());
      };
      request->deliver = [progress = &sample->progress_](
                             std::unique_ptr<InferenceResponse> response, uint32_t flags) {
        const Status status = response == nullptr ? ok() : to_status(response->error.get());
        response.reset();
        if ((flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0) return progress->end_one(status);
        std::lock_guard lock(progress->mutex);
        if (progress->status.ok()) progress->status = status;
      };
      RETURN_IF_ERROR(request->validate());
      sample->requests_.push_back(std::move(request));
    }
    return sample;
  }

  Status run(const WarmupSteps& steps) {
    std::vector<InferenceRequest*> batch;
    for (auto& request : requests_) {
      steps.complete(*request);
      for (const InputTensor& given : of_sequence_) {
        InputTensor* input = request->input(given.name);
        if (input == nullptr) return internal_error("warm-up input '{}' is unknown", given.name);
        *input = given;
      }
      // A warm-up request is no client's: the model does not count it as running.
      request->arm()->counts_as_running = false;
      batch.push_back(request.get());
    }
    std::unique_lock lock(progress_.mutex);
    progress_.num_open = 2 * batch.size();
    lock.unlock();
    steps.execute(std::move(batch));
    lock.lock();
    progress_.changed.wait(lock, [&] { return progress_.num_open == 0; });
    return progress_.status;
  }

 private:
  static InputTensor tensor_of(const WarmupInput& input, const std::string& data, bool is_batched) {
    InputTensor tensor;
    tensor.name = input.name;
    tensor.datatype = input.datatype;
    tensor.shape.assign(input.dims.begin(), input.dims.end());
    if (is_batched) tensor.shape.insert(tensor.shape.begin(), 1);
    tensor.backend_shape = tensor.shape;
    if (!data.empty()) tensor.buffers = {{data.data(), data.size(), TRITONSERVER_MEMORY_CPU, 0}};
    return tensor;
  }

  std::deque<std::string> data_;                      // a deque: addresses are stable
  std::vector<InputTensor> of_client_, of_sequence_;  // inputs for each request of the sample
  std::vector<std::unique_ptr<InferenceRequest>> requests_;
  Progress progress_;
};

}  // namespace

Status run_warmup(const std::shared_ptr<Model>& model, const std::string& instance,
                  const WarmupSteps& steps) {
  for (const auto& spec : model->config().warmup) {
    ASSIGN_OR_RETURN(const auto sample, Sample::create(model, spec));
    for (uint32_t i = 0; i < spec.count; ++i) {
      log_debug("model '{}' instance {} is running warmup sample '{}' for iteration {}",
                model->config().name, instance, spec.name, i + 1);
      const Status status = sample->run(steps);
      if (!status.ok()) {
        return Status(status.code(), fmt::format("failed to run warmup sample '{}': {}; ",
                                                 spec.name, message(status)));
      }
    }
  }
  return ok();
}

}  // namespace nereid::server
