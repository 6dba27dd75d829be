// List of all ops, and common rules. Declarations are in the headers of their families (syntax:
// op.h). Activations are token-packed: n rows, no padding. Sums are in f32; the reduction order of
// each op is independent of n, so a row's result is independent of other rows (on CPU).
//
// Rounding, on every device, once per number:
//   f32   residual stream and its addends, sums, norms, logits; results of products read by other
// ops (queries, keys, values, gate and up); attention's scores and weights
//   bf16  inputs of products; keys and values in a bf16 cache
#pragma once

#include <variant>

#include "kernels/api/attention_ops.h"
#include "kernels/api/exchange_ops.h"
#include "kernels/api/expert_ops.h"
#include "kernels/api/op.h"
#include "kernels/api/product_ops.h"
#include "kernels/api/row_ops.h"
#include "kernels/api/sample.h"
#include "kernels/api/token_ops.h"

namespace nereid::kernels {

// Ops with kernels of a plan in form F. FusedLinear and CrossScores are made at binding; ids of
// FusedLinear refer to the original plan.
template <class F>
using OpIn =
    std::variant<EmbedOf<F>, AddPositionsOf<F>, NormOf<F>, LinearOf<F>, RopeOf<F>, AttentionOf<F>,
                 GluOf<F>, ActivateOf<F>, AddOf<F>, SoftCapOf<F>, RouteOf<F>, ExpertLinearOf<F>,
                 HeadLinearOf<F>, WeightedSumOf<F>, GatherRowsOf<F>, QuantizeOf<F>, LowRankOf<F>,
                 ScaleByPositionOf<F>, XieluOf<F>, SelectExpertsOf<F>, CrossAttentionOf<F>,
                 StoreKvOf<F>, ShiftRowsOf<F>, AddFeaturesOf<F>, AddTilePositionsOf<F>,
                 GateRowsOf<F>, BlendRowsOf<F>>;

template <class Variant, class... More>
struct JoinedOps;
template <class... Ops, class... More>
struct JoinedOps<std::variant<Ops...>, More...> {
  using type = std::variant<Ops..., More...>;
};
// All ops of a plan in form F.
template <class F>
using PlanOpIn = JoinedOps<OpIn<F>, AllReduceOf<F>, AllReduceNormOf<F>, AllGatherOf<F>,
                           TakeColumnsOf<F>, SendOf<F>, RecvOf<F>>::type;

template <class... Ops>
constexpr bool lists_all_members(std::variant<Ops...>*) {
  return (lists_all_members<Ops>() && ...);
}
static_assert(lists_all_members(static_cast<PlanOpIn<Ids>*>(nullptr)) &&
                  lists_all_members<FusedLinearOf<Ids>>() &&
                  lists_all_members<CrossScoresOf<Ids>>(),
              "a field is not declared");

// Nodes of a graph and calls of a plan.
namespace ids {
using Embed = EmbedOf<Ids>;
using AddPositions = AddPositionsOf<Ids>;
using Norm = NormOf<Ids>;
using Linear = LinearOf<Ids>;
using FusedLinear = FusedLinearOf<Ids>;
using Rope = RopeOf<Ids>;
using Attention = AttentionOf<Ids>;
using Glu = GluOf<Ids>;
using Activate = ActivateOf<Ids>;
using Add = AddOf<Ids>;
using SoftCap = SoftCapOf<Ids>;
using Route = RouteOf<Ids>;
using ExpertLinear = ExpertLinearOf<Ids>;
using HeadLinear = HeadLinearOf<Ids>;
using WeightedSum = WeightedSumOf<Ids>;
using GatherRows = GatherRowsOf<Ids>;
using Quantize = QuantizeOf<Ids>;
using LowRank = LowRankOf<Ids>;
using ScaleByPosition = ScaleByPositionOf<Ids>;
using Xielu = XieluOf<Ids>;
using SelectExperts = SelectExpertsOf<Ids>;
using CrossAttention = CrossAttentionOf<Ids>;
using StoreKv = StoreKvOf<Ids>;
using ShiftRows = ShiftRowsOf<Ids>;
using AddFeatures = AddFeaturesOf<Ids>;
using AddTilePositions = AddTilePositionsOf<Ids>;
using GateRows = GateRowsOf<Ids>;
using BlendRows = BlendRowsOf<Ids>;
using AllReduce = AllReduceOf<Ids>;
using AllReduceNorm = AllReduceNormOf<Ids>;
using AllGather = AllGatherOf<Ids>;
using TakeColumns = TakeColumnsOf<Ids>;
using Send = SendOf<Ids>;
using Recv = RecvOf<Ids>;
}  // namespace ids

// Arguments of kernels.
using Embed = EmbedOf<Views>;
using AddPositions = AddPositionsOf<Views>;
using Norm = NormOf<Views>;
using Linear = LinearOf<Views>;
using FusedLinear = FusedLinearOf<Views>;
using Rope = RopeOf<Views>;
using Attention = AttentionOf<Views>;
using Glu = GluOf<Views>;
using Activate = ActivateOf<Views>;
using Add = AddOf<Views>;
using SoftCap = SoftCapOf<Views>;
using Route = RouteOf<Views>;
using ExpertLinear = ExpertLinearOf<Views>;
using HeadLinear = HeadLinearOf<Views>;
using WeightedSum = WeightedSumOf<Views>;
using GatherRows = GatherRowsOf<Views>;
using Quantize = QuantizeOf<Views>;
using LowRank = LowRankOf<Views>;
using ScaleByPosition = ScaleByPositionOf<Views>;
using Xielu = XieluOf<Views>;
using SelectExperts = SelectExpertsOf<Views>;
using CrossAttention = CrossAttentionOf<Views>;
using CrossScores = CrossScoresOf<Views>;
using StoreKv = StoreKvOf<Views>;
using ShiftRows = ShiftRowsOf<Views>;
using AddFeatures = AddFeaturesOf<Views>;
using AddTilePositions = AddTilePositionsOf<Views>;
using GateRows = GateRowsOf<Views>;
using BlendRows = BlendRowsOf<Views>;
using AllReduce = AllReduceOf<Views>;
using AllReduceNorm = AllReduceNormOf<Views>;
using AllGather = AllGatherOf<Views>;
using TakeColumns = TakeColumnsOf<Views>;
using Send = SendOf<Views>;
using Recv = RecvOf<Views>;

}  // namespace nereid::kernels
