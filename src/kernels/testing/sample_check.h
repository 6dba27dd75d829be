// Memory of a test case of sample, and the comparison of a kernel's results with ref.
#pragma once

#include "kernels/testing/cases.h"

namespace nereid::kernels::testing {

struct SampleLayout {
  int64_t rows = 0, slots = 0, vocab = 0, history_stride = 0, top_stride = 0;
  int64_t num_masks = 0;
  bool all_greedy = false, weighs_drafts = false;
  int64_t num_draft_logits = 0;
  Offset draft_logits = 0;
  Offset logits = 0, raw_logits = 0, params = 0, lists = 0, sample_rows = 0, history = 0, masks = 0;
  Offset results = 0, top = 0, slot_tokens = 0;
};

// Near the boundary between two tokens both are right: samples are checked by cumulative weight,
// sums and their logarithms within rounding, everything else exactly. `epsilon`: relative rounding
// of the device's exp.
Status check_sample(const Image& want, const SampleLayout& layout, const Image& got,
                    double epsilon);

}  // namespace nereid::kernels::testing
