// One file from the hub to the disk: resumed, counted, checked, renamed.
#pragma once

#include <filesystem>

#include "base/progress.h"
#include "base/status.h"
#include "hub/cache.h"
#include "hub/client.h"
#include "hub/listing.h"

namespace nereid::hub {

// Bytes of the file that are there already, whole or in its .part.
int64_t bytes_there(const std::filesystem::path& folder, const RecordedFile& file);

// Downloads the file into `folder`, unless it is there. It is written as NAME.part, from where a
// later call goes on, and gets its name once size and checksum are right. DataLoss: the checksum
// is wrong, twice; InvalidArgument: the hub sends more than the size; ResourceExhausted: there is
// no room on the disk.
Status download(Client& client, Shared& shared, const ModelName& model, const std::string& commit,
                const RecordedFile& file, const std::filesystem::path& folder, ProgressBar& bar);

}  // namespace nereid::hub
