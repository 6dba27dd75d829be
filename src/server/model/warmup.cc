// See warmup.h.
#include "server/model/warmup.h"

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <random>

#include "base/file.h"
#include "server/api/error.h"
#include "server/request/response.h"

namespace nereid::server {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 30;  // of one warm-up input

// Responses go to host memory that is dropped with them.
TRITONSERVER_Error* allocate(TRITONSERVER_ResponseAllocator*, const char*, size_t size,
                             TRITONSERVER_MemoryType, int64_t, void*, void** buffer, void** userp,
                             TRITONSERVER_MemoryType* type, int64_t* id) {
  *buffer = size == 0 ? nullptr : std::malloc(size);
  *userp = nullptr;
  *type = TRITONSERVER_MEMORY_CPU;
  *id = 0;
  if (size == 0 || *buffer != nullptr) return nullptr;
  return to_error(resource_exhausted("out of memory for a tensor of {} bytes", size));
}

TRITONSERVER_Error* release(TRITONSERVER_ResponseAllocator*, void* buffer, void*, size_t,
                            TRITONSERVER_MemoryType, int64_t) {
  std::free(buffer);
  return nullptr;
}

ResponseAllocator* allocator() {
  static ResponseAllocator shared = [] {
    ResponseAllocator a;
    a.alloc = allocate;
    a.release = release;
    return a;
  }();
  return &shared;
}

// What one execution still waits for.
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
  // An empty string is its four bytes of length.
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

class Sample {
 public:
  static StatusOr<std::unique_ptr<Sample>> create(const std::shared_ptr<Model>& model,
                                                  const WarmupSample& spec) {
    auto sample = std::make_unique<Sample>();
    const bool batched = model->config().max_batch_size > 0;
    for (const auto& input : spec.inputs) {
      ASSIGN_OR_RETURN(std::string bytes, data_of(input, model->dir()));
      sample->data_.push_back(std::move(bytes));
    }
    for (uint32_t copy = 0; copy < spec.batch_size; ++copy) {
      auto request = std::make_unique<InferenceRequest>(model);
      for (size_t i = 0; i < spec.inputs.size(); ++i) {
        InputTensor& tensor = request->inputs.emplace_back();
        tensor.name = spec.inputs[i].name;
        tensor.datatype = spec.inputs[i].datatype;
        tensor.shape.assign(spec.inputs[i].dims.begin(), spec.inputs[i].dims.end());
        if (batched) tensor.shape.insert(tensor.shape.begin(), 1);
        if (!sample->data_[i].empty()) {
          tensor.buffers = {
              {sample->data_[i].data(), sample->data_[i].size(), TRITONSERVER_MEMORY_CPU, 0}};
        }
      }
      request->allocator = allocator();
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

  Status run(const std::function<void(std::vector<InferenceRequest*>)>& execute) {
    std::vector<InferenceRequest*> batch;
    for (auto& request : requests_) {
      // No request of a client: the model does not count it as running.
      request->arm()->counts_as_running = false;
      batch.push_back(request.get());
    }
    std::unique_lock lock(progress_.mutex);
    progress_.num_open = 2 * batch.size();
    lock.unlock();
    execute(std::move(batch));
    lock.lock();
    progress_.changed.wait(lock, [&] { return progress_.num_open == 0; });
    return progress_.status;
  }

 private:
  std::vector<std::string> data_;
  std::vector<std::unique_ptr<InferenceRequest>> requests_;
  Progress progress_;
};

}  // namespace

Status run_warmup(const std::shared_ptr<Model>& model,
                  const std::function<void(std::vector<InferenceRequest*>)>& execute) {
  for (const auto& spec : model->config().warmup) {
    ASSIGN_OR_RETURN(const auto sample, Sample::create(model, spec));
    for (uint32_t i = 0; i < spec.count; ++i) {
      const Status status = sample->run(execute);
      if (!status.ok()) {
        return Status(status.code(), fmt::format("failed to run warmup sample '{}': {}; ",
                                                 spec.name, message(status)));
      }
    }
  }
  return ok();
}

}  // namespace nereid::server
