// Compares the table in docs/models.md with the sources and the golden outputs.
#include <gmock/gmock.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/testing/source_dir.h"
#include "models/family.h"

namespace nereid::models {
namespace {

const std::filesystem::path kRoot = source_dir();

// Maximal runs of letters, digits, "_" and "-".
std::set<std::string> words_of(const std::string& text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-') {
      word += c;
    } else if (!word.empty()) {
      words.insert(std::exchange(word, ""));
    }
  }
  return words;
}

TEST(ModelsTable, NamesArchitecturesFilesLinesAndGoldens) {
  std::istringstream page(read_file(kRoot / "docs/models.md").value());
  std::set<std::string> named, proofs;
  int num_files = 0;
  for (std::string line; std::getline(page, line);) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, '|');) cells.push_back(cell);
    if (cells.size() < 5 || cells[2].find(".cc`") == std::string::npos) continue;
    for (const std::string& word : words_of(cells[1]))
      if (word.ends_with("ForCausalLM") || word.ends_with("LMHeadModel") ||
          word.ends_with("ForConditionalGeneration") || word.ends_with("MTModel"))
        named.insert(word);
    proofs.merge(words_of(cells[4]));
    const size_t begin = cells[2].find('`') + 1;
    const std::string file = cells[2].substr(begin, cells[2].rfind('`') - begin);
    const auto source = read_file(kRoot / "src/models" / file);
    ASSERT_TRUE(source.ok()) << source.status();
    const auto lines = std::ranges::count(*source, '\n');
    if (cells[3].find('(') != std::string::npos) continue;  // lines of a sibling family
    ++num_files;
    EXPECT_EQ(std::stoi(cells[3]), lines) << file;
  }
  EXPECT_GT(num_files, 20);
  std::set<std::string> known;
  for (const Family& family : families()) known.emplace(family.architecture);
  for (const PictureFamily& family : picture_families()) known.emplace(family.architecture);
  EXPECT_EQ(named, known);
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / "tests/golden/arch"))
    EXPECT_TRUE(proofs.contains(entry.path().stem().string())) << entry.path();
  for (const char* folder : {"tests/golden/encoder", "tests/golden/pictures"})
    for (const auto& entry : std::filesystem::directory_iterator(kRoot / folder))
      EXPECT_TRUE(proofs.contains(entry.path().stem().string())) << entry.path();
}

}  // namespace
}  // namespace nereid::models
