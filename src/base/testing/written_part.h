// Test only: parts of documents that tests write and compare.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/testing/source_dir.h"

namespace nereid {

// Expects `text` between the marks `begin` and `end` of a file of the checkout; with
// NEREID_WRITE_DOCS in the environment writes it. `how`: the command that does.
inline void expect_written_part(const std::string& file, std::string_view begin,
                                std::string_view end, const std::string& text,
                                std::string_view how) {
  const std::string path = source_dir() + file;
  std::string page = *read_file(path);
  const size_t first = page.find(begin), last = page.find(end);
  ASSERT_LT(first, last);
  ASSERT_NE(last, std::string::npos);
  const size_t from = first + begin.size();
  if (std::getenv("NEREID_WRITE_DOCS") != nullptr) {
    page.replace(from, last - from, text);
    ASSERT_TRUE(write_file_atomic(path, page).ok());
    return;
  }
  EXPECT_EQ(page.substr(from, last - from), text) << "write it again: " << how;
}

}  // namespace nereid
