// `nereid serve` for commands with other flags, which they translate.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace nereid::cli {

// Serves until a signal; `words` are a model and flags of `nereid serve`. `when_ready` is called
// with the process's URL once all ports answer. Returns the exit code.
int serve_main(const std::vector<std::string>& words,
               const std::function<void(const std::string& url)>& when_ready);

}  // namespace nereid::cli
