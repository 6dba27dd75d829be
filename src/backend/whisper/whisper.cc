// Backend "whisper_bls": sound in, its transcript out, by one call of the model tensorrt_llm.
#include <filesystem>
#include <vector>

#include "backend/common/backend_model.h"
#include "backend/common/check_parameters.h"
#include "backend/common/run_watch.h"
#include "backend/whisper/speech_input.h"
#include "backend/whisper/whisper_run.h"

namespace nereid::backend {
namespace {

class WhisperModel {
 public:
  static constexpr uint64_t kQuickBytes = 0;  // features take some 10 ms

  static StatusOr<std::unique_ptr<WhisperModel>> create(TRITONBACKEND_Model* model) {
    ASSIGN_OR_RETURN(const ModelSettings config, ModelSettings::read(model));
    RETURN_IF_ERROR(check_parameters(config, "whisper_bls"));
    warn_without_effect(config, "whisper_bls");
    RETURN_IF_ERROR(config.check_type("TRANSCRIPTS", TRITONSERVER_TYPE_BYTES));
    WhisperSettings s;
    RETURN_IF_ERROR(take(TRITONBACKEND_ModelServer(model, &s.server)));
    s.decoupled = config.decoupled;
    ASSIGN_OR_RETURN(s.cuts, config.boolean("zero_pad", false));
    ASSIGN_OR_RETURN(const int64_t num_mels, config.integer("n_mels", 0));
    ASSIGN_OR_RETURN(s.mel, speech::LogMel::create(static_cast<int>(num_mels)));
    std::vector<std::filesystem::path> folders = {std::filesystem::path(config.dir) /
                                                  std::to_string(config.version)};
    for (const char* key : {"tokenizer_dir", "engine_dir"})
      if (const auto folder = config.parameter(key)) folders.emplace_back(*folder);
    auto tokenizer = load_speech_tokenizer(folders);
    if (!tokenizer.ok())
      return annotate(tokenizer.status(), fmt::format("model '{}'", config.name));
    s.tokenizer = *std::move(tokenizer);
    const auto end = s.tokenizer->token_id("<|endoftext|>");
    if (!end)
      return invalid_argument("model '{}': the tokenizer has no token <|endoftext|>", config.name);
    s.end_id = *end;
    return std::make_unique<WhisperModel>(std::move(s));
  }

  explicit WhisperModel(WhisperSettings settings)
      : settings_(std::move(settings)), callees_(settings_.server) {
    settings_.callees = &callees_;
  }

  void execute(std::unique_ptr<Request> request) {
    runs_
        .add([&](uint64_t number, std::function<void()> on_over) {
          return std::make_shared<WhisperRun>(
              settings_, std::move(request), fmt::format("whisper-{}", number), std::move(on_over));
        })
        ->start();
  }

 private:
  WhisperSettings settings_;
  Callees callees_;
  RunWatch<WhisperRun> runs_;  // first to be destroyed
};

}  // namespace
}  // namespace nereid::backend

NEREID_DEFINE_BACKEND(nereid::backend::WhisperModel)
