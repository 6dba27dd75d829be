// The pictures of a conversation and of its prompt. Internal to front/openai.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/json.h"
#include "front/openai/error.h"
#include "front/protection/byte_budget.h"
#include "vision/picture.h"
#include "vision/prompt/picture_marks.h"

namespace nereid::front {

struct Picture {
  vision::Patches patches;
  BudgetShare held;  // of `patches`
};
using PicturePtr = std::shared_ptr<const Picture>;

// The pictures of a prompt, in its order.
struct PromptPictures {
  std::vector<PicturePtr> pictures;
  std::vector<vision::TokenSpan> spans;  // of each of vision::grids_of()
  BudgetShare held;                      // of the values in the engine's request

  size_t num_bytes() const;  // of all values
};

// A 400 if a string in the template's variables could stand for a picture.
std::optional<ApiError> check_no_marks(const json::object& context,
                                       const vision::PictureMarks& marks);

// The numbers of the pictures in the messages' parts {"type": "image", "picture": number}.
std::vector<size_t> pictures_in(const json::object& context);
// The messages with texts in place of lists of parts: marks of the pictures, then the parts' texts,
// a line each.
json::object with_marks_in_texts(const json::object& context, const vision::PictureMarks& marks);
}  // namespace nereid::front
