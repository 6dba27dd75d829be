// docs/options.md is what `nereid options` prints.
#include "cli/flags/options_page.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/testing/source_dir.h"

namespace nereid::cli {
namespace {

TEST(OptionsPage, DocsHaveWhatTheProgramPrints) {
  const std::filesystem::path path = source_dir() + "/docs/options.md";
  if (std::getenv("NEREID_WRITE_DOCS") != nullptr) {
    ASSERT_TRUE(write_file_atomic(path, options_page()).ok());
    return;
  }
  EXPECT_EQ(*read_file(path), options_page()) << "write it again: make options";
}

}  // namespace
}  // namespace nereid::cli
