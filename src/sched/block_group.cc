// BlockGroup: references, lists and expiries.
#include "sched/block_group.h"

#include <algorithm>

#include "base/check.h"

namespace nereid::sched {

bool are_valid(const std::vector<BlockGroupConfig>& groups) {
  if (groups.empty() || groups.size() > kMaxGroups) return false;
  for (size_t i = 0; i < groups.size(); ++i) {
    const BlockGroupConfig& group = groups[i];
    if (group.num_blocks <= 0 || group.num_host_blocks < 0 || group.window < 0 || group.sink < 0)
      return false;
    if (i == 0 || groups[i - 1].window == 0) continue;
    if (group.window == 0 || group.window > groups[i - 1].window) return false;
  }
  return true;
}

BlockGroup::BlockGroup(const BlockGroupConfig& config)
    : config_(config),
      blocks_(static_cast<size_t>(config.num_blocks) + config.num_host_blocks),
      device_(0, config.num_blocks),
      host_(config.num_blocks, config.num_host_blocks) {}

void BlockGroup::hold(BlockId id) {
  NEREID_CHECK(!on_host(id));
  if (blocks_[id].refs++ == 0) unlink(id);
  most_held_ = std::max(most_held_, config_.num_blocks - num_free());
}

void BlockGroup::unhold(BlockId id, Time now) {
  NEREID_CHECK(blocks_[id].refs > 0);
  if (--blocks_[id].refs > 0) return;
  NEREID_CHECK(blocks_[id].pins == 0);
  blocks_[id].tainted = false;
  link(id, expiry_from(id, now));
}

void BlockGroup::pin(BlockId id) {
  NEREID_CHECK(on_host(id) || blocks_[id].refs > 0);
  if (blocks_[id].pins++ == 0 && on_host(id)) unlink(id);
}

void BlockGroup::unpin(BlockId id, Time now) {
  NEREID_CHECK(blocks_[id].pins > 0);
  if (--blocks_[id].pins == 0 && on_host(id)) link(id, expiry_from(id, now));
}

void BlockGroup::fill(BlockId id, NodeId node, const Retention& retention) {
  NEREID_CHECK(!level_of(id).contains(id));
  blocks_[id].node = node;
  blocks_[id].retention = retention;
}

void BlockGroup::clear(BlockId id) {
  stop_expiry(id);
  blocks_[id].node = kNoNode;
  blocks_[id].retention = {};
  EvictionLists& level = level_of(id);
  if (level.contains(id)) level.move(id, EvictionLists::kEmpty);
}

void BlockGroup::retain(BlockId id, const Retention& retention) {
  NEREID_CHECK(blocks_[id].refs > 0);
  blocks_[id].retention = retention;
}

void BlockGroup::unlink(BlockId id) {
  level_of(id).remove(id);
  stop_expiry(id);
}

Time BlockGroup::expiry_from(BlockId id, Time now) const {
  const Block& block = blocks_[id];
  const bool expires = block.node != kNoNode && block.retention.duration.has_value();
  return expires ? now + *block.retention.duration : Time::max();
}

void BlockGroup::link(BlockId id, Time expiry) {
  Block& block = blocks_[id];
  level_of(id).push(id, list_of(block));
  if (expiry == Time::max()) return;
  block.expiry = expiry;
  expiries_.add(expiry, id);
}

void BlockGroup::stop_expiry(BlockId id) {
  Block& block = blocks_[id];
  if (block.expiry == Time::max()) return;
  expiries_.remove(block.expiry, id);
  block.expiry = Time::max();
}

std::optional<BlockGroup::Expired> BlockGroup::expire(Time now) {
  const BlockId id = expiries_.pop(now);
  if (id == kNoBlock) return std::nullopt;
  Block& block = blocks_[id];
  const bool changes = block.retention.priority != Retention{}.priority;
  block.retention = {};
  block.expiry = Time::max();
  level_of(id).move(id, list_of(block));
  return Expired{id, changes};
}

void BlockGroup::forget_everything() {
  expiries_.clear();
  for (BlockId id = 0; id < end(); ++id) {
    Block& block = blocks_[id];
    block.expiry = Time::max();
    block.tainted = block.refs > 0;
    if (block.node != kNoNode) clear(id);
  }
}

int64_t BlockGroup::check() const {
  device_.check();
  host_.check();
  int64_t refs = 0;
  int32_t held = 0, pinned_on_host = 0;
  size_t expiring = 0;
  for (BlockId id = 0; id < end(); ++id) {
    const Block& block = blocks_[id];
    const EvictionLists& level = on_host(id) ? host_ : device_;
    refs += block.refs;
    held += block.refs > 0;
    const bool pinned = on_host(id) && block.pins > 0, linked = block.refs == 0 && !pinned;
    pinned_on_host += pinned;
    NEREID_CHECK(block.refs >= 0 && block.pins >= 0 && level.contains(id) == linked);
    NEREID_CHECK(block.refs > 0 || !block.tainted);
    NEREID_CHECK(on_host(id) ? block.refs == 0 : block.refs > 0 || block.pins == 0);
    NEREID_CHECK(!linked || level.list_of(id) == list_of(block));
    const bool expires = linked && block.node != kNoNode && block.retention.duration.has_value();
    NEREID_CHECK(expires == (block.expiry != Time::max()));
    expiring += expires;
  }
  NEREID_CHECK(expiring == expiries_.size());
  NEREID_CHECK(num_free() + held == config_.num_blocks);
  NEREID_CHECK(host_.size() + pinned_on_host == config_.num_host_blocks);
  return refs;
}

}  // namespace nereid::sched
