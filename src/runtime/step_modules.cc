#include "runtime/step_modules.h"

#include <utility>

#include "runtime/modules/adapters.h"
#include "runtime/modules/alignment.h"
#include "runtime/modules/encoder_inputs.h"
#include "runtime/modules/output_logits.h"
#include "runtime/modules/prefill_limit.h"
#include "runtime/modules/prompt_embeddings.h"
#include "runtime/prompts/pooler.h"
#include "runtime/prompts/prompt_scorer.h"

namespace nereid::runtime {

// Modules without a header, each in its file of modules/.
std::unique_ptr<StepModule> make_run_hash();
std::unique_ptr<StepModule> make_batch_watch(BatchRecorder& recorder, const Clock& clock);
std::unique_ptr<StepModule> make_prefix_outline(PrefixWatch& watch, const Clock& clock);

// The order decides three things:
//   offer(): PrefillLimit before Speculation, which reads it; GrammarMasks before Speculation. A
//   sequence has the drafts of one of them; a wait for
//     forced tokens is decided once.
//   planned(): EncoderInputs before Adapters, which sets the adapters of the inputs.
//   completed(): modules that can fail a row before modules that count rows (GrammarMasks and the
//     ones behind it): a row that fails its sequence is not counted.
//   finished(): StepRecorder is last, behind BatchWatch, and reads the updates as clients get them.
// All else is independent: a field of StepRow and an array of the step have one writer behind the
// engine and its sampler. Speculation alone raises num_logits, and num_hidden of unpooled rows.
StepModules make_step_modules(const StepModuleOptions& options, const exec::Runner& runner,
                              Inbox& inbox, const Progress& progress, StatsRings& rings,
                              std::function<void(RequestId)> scored) {
  auto speculation = std::make_unique<Speculation>(options.proposer, options.speculation);
  auto guides = std::make_unique<GrammarMasks>(
      runner.vocab_size(), options.jumps_ahead, options.guide_steps, speculation->costs(),
      [&inbox](RequestId id) { inbox.push(MaskMade{id}); });
  StepModules all;
  if (options.max_prefill > Duration(0))
    all.push_back(std::make_unique<PrefillLimit>(options.max_prefill));
  all.push_back(std::make_unique<EncoderInputs>(runner.limits().block_tokens));
  all.push_back(std::make_unique<Adapters>(runner.limits()));
  all.push_back(std::make_unique<PromptEmbeddings>(runner.vocab_size(), runner.embedding_width()));
  all.push_back(std::make_unique<Alignment>());
  all.push_back(std::make_unique<OutputLogits>(runner.vocab_size()));
  all.push_back(
      std::make_unique<Pooler>(runner.hidden_size(), runner.num_states(), options.score_head));
  all.push_back(std::make_unique<PromptScorer>(std::move(scored)));
  all.push_back(std::move(guides));
  all.push_back(std::move(speculation));
  all.push_back(make_run_hash());
  all.push_back(make_batch_watch(rings.batch, *options.clock));
  all.push_back(make_prefix_outline(rings.prefixes, *options.clock));
  all.push_back(std::make_unique<StepRecorder>(options.memory, progress, rings));
  return all;
}

}  // namespace nereid::runtime
