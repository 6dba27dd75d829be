// The report of `nereid doctor`, without its printing.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::cli {

// One subject of the report. kNote: a cost, or a limit that some models reach; kPrevents: `nereid
// serve` with its defaults would fail.
struct Finding {
  enum Kind { kOk, kNote, kPrevents };
  Kind kind = kOk;
  std::string subject, text;
};

// Size of the files, and whether one can be written. The folder may be missing, but not the right
// to make it.
Finding check_cache(const std::filesystem::path& folder);

// Whether the file `enabled` of /sys/kernel/mm/transparent_hugepage lets large buffers have them:
// "always [madvise] never".
Finding check_huge_pages(std::string_view enabled);

// Whether `nereid serve` could listen to the port on 127.0.0.1.
Finding check_default_port(const char* flag, int port);

std::vector<Finding> all_findings();

}  // namespace nereid::cli
