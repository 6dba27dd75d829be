// The ranks of a model: mapping and devices of a configuration, their communicators.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "exec/exchange.h"
#include "io/plan.h"
#include "kernels/open.h"
#include "nereid/config.h"

namespace nereid::runtime {

// Names of devices in a list: "cuda:0-2,4", "cpu", UUIDs of GPUs. InvalidArgument: `devices`.
StatusOr<std::vector<std::string>> read_devices(std::string_view list);

// Name of the first rank's device, as for kernels::open_device(); of the first instance.
std::string first_device(const ExecutorConfig& config);

// Mapping of the configuration's first rank. tensor_parallel auto: tp is 0. InvalidArgument naming
// the field: out of range, more than io::kMaxRanks ranks, or expert_parallel not a divisor.
StatusOr<io::Mapping> read_mapping(const ExecutorConfig& config);

// The mapping for a model. In launched processes, and in process mode orchestrator, the ranks that
// the model is built for (convert::built_mapping()) count if the configuration asks for one; in
// launched processes tensor_parallel auto is their number by that of the stages. Errors as
// read_mapping() and built_mapping().
StatusOr<io::Mapping> mapping_of(const std::filesystem::path& model_dir,
                                 const ExecutorConfig& config);

// Processes in a list: "1,2"; empty: none. InvalidArgument naming `participant_ids`.
StatusOr<std::vector<int32_t>> read_participants(std::string_view list);

// Launched processes, of which this is process 0: in leader mode those of the ranks behind its own,
// which are the first ones (of joined processes several, else one), in orchestrator mode, if
// participant_ids has any, those of all ranks. Empty: this process was started alone, or starts
// processes itself. InvalidArgument: numbers of ranks and processes that do not fit; not process 0.
StatusOr<std::vector<int32_t>> launched_participants(const ExecutorConfig& config,
                                                     const io::Mapping& mapping);

// Opens the devices of a mapping's ranks, in order. CPU threads are divided among the ranks; in
// launched processes each has launched_threads() by default.
// InvalidArgument naming `devices` or `device`: too few, or of two kinds.
StatusOr<std::vector<kernels::OpenedDevice>> open_devices(const ExecutorConfig& config,
                                                          int32_t num_ranks);

// The fewest tensor ranks whose parts of the model compile and fit into the devices' memory; 1 on a
// CPU. ResourceExhausted: of no number of ranks up to that of the GPUs.
StatusOr<int32_t> fewest_tensor_ranks(const std::filesystem::path& model_dir,
                                      const ExecutorConfig& config, const io::Mapping& mapping);

// Communicators of all ranks, in order. The devices must outlive them.
StatusOr<std::vector<exec::RankComms>> join_ranks(
    const ExecutorConfig& config, const io::Mapping& mapping,
    std::span<const kernels::OpenedDevice* const> devices);

}  // namespace nereid::runtime
