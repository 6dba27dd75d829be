#include "runtime/prompts/embedding_rows.h"

#include <variant>

#include "kernels/api/pack.h"

namespace nereid::runtime {

StatusOr<EmbeddingRows> EmbeddingRows::open(const std::filesystem::path& engine) {
  ASSIGN_OR_RETURN(io::EngineFile file, io::EngineFile::open(engine, io::Verify::kHeader));
  EmbeddingRows rows(std::move(file));
  const io::Plan& plan = rows.file_.plan();
  for (const io::Call& call : plan.calls) {
    const auto* embed = std::get_if<kernels::ids::Embed>(&call.op);
    if (!embed) continue;
    rows.table_ =
        io::view_of(plan.weights[static_cast<size_t>(embed->table)], rows.file_.blob().data());
    return rows;
  }
  return invalid_argument("{}: has no embeddings", engine.string());
}

void EmbeddingRows::add(TokenId token, std::vector<BF16>& out) const {
  for (int64_t c = 0; c < table_.k; ++c)
    out.push_back(to_bf16(kernels::weight_at(table_, token, c)));
}

}  // namespace nereid::runtime
