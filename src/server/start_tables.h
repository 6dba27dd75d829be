// The tables that a server logs when it has started: scripts read them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/options.h"
#include "server/repository/model_manager.h"

namespace nereid::server {

using TableRow = std::vector<std::string>;

// Ruled rows of equal numbers of cells, the first being the head; a cell of several lines continues
// below, with the others empty.
std::string format_table(const std::vector<TableRow>& rows);

// Repository agents, backends and models, as log messages.
void log_loaded(ModelManager& models);

// What the server was started with. `extensions` are the protocol extensions of its metadata.
void log_options(const ServerOptions& options, const UsableGpus& gpus, std::string_view version,
                 const std::vector<std::string>& extensions);

}  // namespace nereid::server
