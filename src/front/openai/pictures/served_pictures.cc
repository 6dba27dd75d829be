#include "front/openai/pictures/served_pictures.h"

#include <charconv>
#include <limits>
#include <string>
#include <system_error>

namespace nereid::front {
namespace {

// A parameter of the configuration; 0: none, or no number up to 2^31.
int64_t number_of(const json::value& config, std::string_view key) {
  const std::string text = config_parameter(config, key);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole && value > 0 && value <= std::numeric_limits<int32_t>::max() ? value : 0;
}

}  // namespace

StatusOr<std::shared_ptr<const ServedPictures>> load_pictures(const json::value& engine_config,
                                                              const ModelInfo& engine,
                                                              const std::filesystem::path& dir,
                                                              const text::Tokenizer& tokenizer) {
  auto out = std::make_shared<ServedPictures>();
  out->encoder = {number_of(engine_config, "picture_patch_width"),
                  number_of(engine_config, "picture_merge"),
                  number_of(engine_config, "picture_max_patches")};
  if (out->encoder.patch_width == 0 || engine.input(kPatchesInput) == nullptr)
    return unsupported(
        "model '{}' takes no pictures: serve one with a vision encoder, such as LLaVA or Qwen2-VL",
        engine.name);
  if (out->encoder.merge == 0 || out->encoder.max_patches == 0)
    return internal_error("model '{}' has no parameter picture_merge or picture_max_patches",
                          engine.name);
  ASSIGN_OR_RETURN(out->processor, vision::read_processor(dir, out->encoder));
  ASSIGN_OR_RETURN(out->marks, vision::find_marks(dir, tokenizer));
  return std::shared_ptr<const ServedPictures>(std::move(out));
}

}  // namespace nereid::front
