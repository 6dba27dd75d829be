// The tables that a server logs after its start; scripts parse them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/options.h"
#include "server/repository/model_manager.h"

namespace nereid::server {

using TableRow = std::vector<std::string>;

// A ruled table of rows of equally many cells, the first row being the head; a cell of several
// lines continues in lines with empty other cells.
std::string format_table(const std::vector<TableRow>& rows);

// Logs the tables of repository agents, backends and models.
void log_loaded(ModelManager& models);

// Logs the table of options. `extensions`: the protocol extensions of the server's metadata.
void log_options(const ServerOptions& options, const UsableGpus& gpus, std::string_view version,
                 const std::vector<std::string>& extensions);

}  // namespace nereid::server
