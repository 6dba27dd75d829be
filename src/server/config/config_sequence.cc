// sequence_batching of a ModelConfig message to plain, validated data.
#include <algorithm>
#include <set>

#include "server/config/config_fields.h"

namespace nereid::server {
namespace {

using Message = inference::ModelSequenceBatching;
using Kind = SequenceControl::Kind;

constexpr uint32_t kMaxCandidates = 1 << 16;
constexpr int kMaxStates = 1024;

template <class T>
std::string bytes_of(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}

// Reads the two values of a boolean control.
struct ValueReader {
  const Message::Control& m;
  const std::string kind, model, where;

  template <class T, class Values>
  Status read(const char* field, const Values& values, TRITONSERVER_DataType type,
              SequenceControl& out) const {
    if (values.size() == 0) return ok();
    if (values.size() != 2) {
      return invalid_argument(
          "sequence batching control '{}' must have exactly 2 entries for {} for {}{}", field, kind,
          model, where);
    }
    out.datatype = type;
    out.no = bytes_of(static_cast<T>(values.Get(0)));
    out.yes = bytes_of(static_cast<T>(values.Get(1)));
    return ok();
  }

  Status read_all(SequenceControl& out) const {
    const int given = (m.int32_false_true_size() > 0) + (m.fp32_false_true_size() > 0) +
                      (m.bool_false_true_size() > 0);
    if (given == 0) {
      return invalid_argument(
          "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
          "'bool_false_true' for {} for {}{}",
          kind, model, where);
    }
    if (given > 1) {
      return invalid_argument(
          "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' "
          "and 'bool_false_true' for {} for {}{}",
          kind, model, where);
    }
    RETURN_IF_ERROR(
        read<int32_t>("int32_false_true", m.int32_false_true(), TRITONSERVER_TYPE_INT32, out));
    RETURN_IF_ERROR(
        read<float>("fp32_false_true", m.fp32_false_true(), TRITONSERVER_TYPE_FP32, out));
    return read<bool>("bool_false_true", m.bool_false_true(), TRITONSERVER_TYPE_BOOL, out);
  }

  Status read_id(SequenceControl& out) const {
    if (m.int32_false_true_size() + m.fp32_false_true_size() + m.bool_false_true_size() > 0) {
      return invalid_argument(
          "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or "
          "'bool_false_true' for {} for {}{}",
          kind, model, where);
    }
    out.datatype = static_cast<TRITONSERVER_DataType>(m.data_type());
    static const std::set<TRITONSERVER_DataType> kAllowed = {
        TRITONSERVER_TYPE_UINT64, TRITONSERVER_TYPE_INT64, TRITONSERVER_TYPE_UINT32,
        TRITONSERVER_TYPE_INT32, TRITONSERVER_TYPE_BYTES};
    if (kAllowed.contains(out.datatype)) return ok();
    return invalid_argument(
        "unexpected data type for control {} for {}. Allowed data types are TYPE_UINT64, "
        "TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING{}",
        kind, model, where);
  }
};

Status fill_controls(const Message& m, const std::string& model, const std::string& where,
                     SequenceBatching& out) {
  std::set<std::string> names;
  std::set<int> kinds;
  for (const auto& input : m.control_input()) {
    if (input.name().empty()) {
      return invalid_argument("sequence batching control tensor must have a name for {}{}", model,
                              where);
    }
    if (input.control_size() != 1 || !names.insert(input.name()).second) {
      if (input.control_size() == 0) {
        return invalid_argument(
            "sequence batching control tensor '{}' must specify a control for "
            "{}{}",
            input.name(), model, where);
      }
      return invalid_argument(
          "sequence batching control tensor '{}' is specified for multiple control kinds for {}{}",
          input.name(), model, where);
    }
    const auto& control = input.control(0);
    const std::string kind = Message::Control::Kind_Name(control.kind());
    if (kind.empty()) {
      return invalid_argument("sequence batching control tensor '{}': kind {} does not exist{}",
                              input.name(), static_cast<int>(control.kind()), where);
    }
    if (!kinds.insert(control.kind()).second) {
      return invalid_argument("sequence batching specifies multiple {} tensors for {}{}", kind,
                              model, where);
    }
    SequenceControl spec;
    spec.name = input.name();
    constexpr Kind kKinds[] = {Kind::kStart, Kind::kReady, Kind::kEnd, Kind::kId};
    spec.kind = kKinds[control.kind()];
    const ValueReader reader{control, kind, model, where};
    RETURN_IF_ERROR(spec.kind == Kind::kId ? reader.read_id(spec) : reader.read_all(spec));
    out.controls.push_back(std::move(spec));
  }
  return ok();
}

Status fill_initial(const Message::State& m, const std::string& model, const std::string& where,
                    SequenceState& out) {
  out.initial_dims = out.dims;
  for (int64_t& d : out.initial_dims) d = d == -1 ? 1 : d;
  const auto wrong = [&](std::string_view what) {
    return invalid_argument("'initial_state' of state input '{}' of {}: {}{}", m.input_name(),
                            model, what, where);
  };
  if (m.initial_state_size() > 1) {
    return invalid_argument(
        "'initial_state' field for state input name '{}' must contain exactly one or zero element. "
        "Found '{}' elements. ({}{})",
        m.input_name(), m.initial_state_size(), model, where);
  }
  if (m.initial_state_size() == 0) return ok();
  const auto& initial = m.initial_state(0);
  if (initial.name().empty()) {
    return invalid_argument(
        "Field 'name' must be set when using initial_state for state input '{}'.{}", m.input_name(),
        where);
  }
  if (initial.data_type() != m.data_type()) {
    return invalid_argument(
        "The data type used for 'initial_state' field of state '{}' does not match the state data "
        "type.{}",
        m.input_name(), where);
  }
  if (initial.dims_size() != m.dims_size()) {
    return invalid_argument(
        "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for "
        "state input '{}'. {} != {}{}",
        m.input_name(), initial.dims_size(), m.dims_size(), where);
  }
  out.initial_dims.assign(initial.dims().begin(), initial.dims().end());
  for (size_t i = 0; i < out.dims.size(); ++i) {
    if (out.initial_dims[i] < 1) {
      return invalid_argument(
          "'initial_state' field for state input name '{}' contains variable dimensions.{}",
          m.input_name(), where);
    }
    if (out.dims[i] != -1 && out.dims[i] != out.initial_dims[i]) {
      return invalid_argument(
          "'initial_state' dim for input name '{}' doesn't match 'state' dim description. {} != "
          "{}{}",
          m.input_name(), out.initial_dims[i], out.dims[i], where);
    }
  }
  if (initial.state_data_case() == Message::InitialState::STATE_DATA_NOT_SET) {
    return invalid_argument("initial_state setting expects state '{}' to have state_data set{}",
                            m.input_name(), where);
  }
  if (initial.state_data_case() == Message::InitialState::kZeroData) return ok();
  out.initial_file = initial.data_file();
  if (out.initial_file.empty() || out.initial_file.starts_with('/') ||
      out.initial_file.find("..") != std::string::npos) {
    return wrong(fmt::format("'{}' is not a file below initial_state", out.initial_file));
  }
  return ok();
}

Status fill_states(const Message& m, const std::string& model, const std::string& where,
                   SequenceBatching& out) {
  std::set<std::string> inputs, outputs;
  if (m.state_size() > kMaxStates) {
    return invalid_argument("{} has {} states, at most {}{}", model, m.state_size(), kMaxStates,
                            where);
  }
  for (const auto& state : m.state()) {
    if (state.input_name().empty() || state.output_name().empty()) {
      return invalid_argument("each state of {} must specify 'input_name' and 'output_name'{}",
                              model, where);
    }
    if (!inputs.insert(state.input_name()).second) {
      return invalid_argument("State input name '{}' specified more than once.{}",
                              state.input_name(), where);
    }
    if (!outputs.insert(state.output_name()).second) {
      return invalid_argument("State output name '{}' specified more than once.{}",
                              state.output_name(), where);
    }
    if (state.data_type() == inference::TYPE_INVALID ||
        !inference::DataType_IsValid(state.data_type())) {
      return invalid_argument("state '{}' of {} must specify 'data_type'{}", state.input_name(),
                              model, where);
    }
    SequenceState spec;
    spec.input_name = state.input_name();
    spec.output_name = state.output_name();
    spec.datatype = static_cast<TRITONSERVER_DataType>(state.data_type());
    spec.dims.assign(state.dims().begin(), state.dims().end());
    spec.same_buffer = state.use_same_buffer_for_input_output();
    spec.growable = state.use_growable_memory();
    double size = 1;
    for (int64_t d : spec.dims) {
      if (d < 1 && d != -1) {
        return invalid_argument(
            "state '{}' of {}: a dimension must be an integer >= 1, or -1, got {}{}",
            state.input_name(), model, d, where);
      }
      size *= d == -1 ? 1.0 : static_cast<double>(d);
    }
    if (size > static_cast<double>(uint64_t{1} << 36)) {
      return invalid_argument("state '{}' of {} has more than 2^36 elements{}", state.input_name(),
                              model, where);
    }
    RETURN_IF_ERROR(fill_initial(state, model, where, spec));
    out.states.push_back(std::move(spec));
  }
  return ok();
}

Status fill_strategy(const Message& m, const ModelConfig& config, const std::string& where,
                     SequenceBatching& out) {
  if (!m.has_oldest()) {
    out.max_delay_us = m.direct().max_queue_delay_microseconds();
    out.min_utilization = m.direct().minimum_slot_utilization();
    if (out.min_utilization >= 0 && out.min_utilization <= 1) return ok();
    return invalid_argument(
        "sequence batching minimum slot utilization must be in range (0.0, 1.0] for {}{}",
        config.name, where);
  }
  const auto& oldest = m.oldest();
  out.oldest = true;
  if (oldest.max_candidate_sequences() < 0 ||
      static_cast<uint32_t>(oldest.max_candidate_sequences()) > kMaxCandidates) {
    return invalid_argument(
        "sequence batching 'max_candidate_sequences' must be in range [1, {}] for {}, got {}{}",
        kMaxCandidates, config.name, oldest.max_candidate_sequences(), where);
  }
  out.max_candidates = std::max(1, oldest.max_candidate_sequences());
  out.max_delay_us = oldest.max_queue_delay_microseconds();
  out.preserve_ordering = oldest.preserve_ordering();
  out.preferred_sizes.assign(oldest.preferred_batch_size().begin(),
                             oldest.preferred_batch_size().end());
  for (int32_t size : out.preferred_sizes) {
    if (size <= 0) {
      return invalid_argument("sequence batching preferred batch size must be positive for {}{}",
                              config.name, where);
    }
    if (size > config.max_batch_size) {
      return invalid_argument(
          "sequence batching preferred batch size must be <= max batch size for {}{}", config.name,
          where);
    }
  }
  return ok();
}

}  // namespace

Status fill_sequences(const Parsed& p, ModelConfig& out) {
  if (!p.config.has_sequence_batching()) return ok();
  const auto& m = p.config.sequence_batching();
  const std::string where = p.where("sequence_batching");
  SequenceBatching& sequences = out.sequences.emplace();
  sequences.max_idle_us = m.max_sequence_idle_microseconds();
  sequences.iterative = m.iterative_sequence();
  RETURN_IF_ERROR(fill_strategy(m, out, where, sequences));
  RETURN_IF_ERROR(fill_controls(m, out.name, where, sequences));
  return fill_states(m, out.name, where, sequences);
}

}  // namespace nereid::server
