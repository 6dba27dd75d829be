// Sections of docs/flags.md.
#include "cli/flags/flags_page.h"

#include <gtest/gtest.h>

namespace nereid::cli {
namespace {

const CommandText kCommand = {
    .name = "sample",
    .help = "do a thing",
    .flags = {{.names = {"-h", "--help"}, .group = "Options", .help = "print the flags"},
              {.names = {"FILE"}, .help = "what is read"},
              {.names = {"--kind", "-k"},
               .value = "WORD [a]",
               .choices = {"a", "b"},
               .group = "Speed",
               .help = "a|b <x>"},
              {.names = {"--type"}, .value = "{c,d}", .choices = {"c", "d"}, .group = "Options"},
              {.names = {"--max-batch-size"}, .value = "N", .group = "Batching"}},
    .notes = "See there."};

TEST(FlagsPage, HasWordsAndGroups) {
  EXPECT_EQ(flags_section(kCommand, {}),
            "\n## sample\n\ndo a thing\n"
            "\n| Arguments | Value [default] | Meaning |\n|---|---|---|\n"
            "| `FILE` |  | what is read |\n"
            "\n| Options | Value [default] | Meaning |\n|---|---|---|\n"
            "| `-h`, `--help` |  | print the flags |\n"
            "| `--type` | `{c,d}` |  |\n"
            "\n| Speed | Value [default] | Meaning |\n|---|---|---|\n"
            "| `--kind`, `-k` | `WORD [a]`: a, b | a\\|b &lt;x> |\n"
            "\n| Batching | Value [default] | Meaning |\n|---|---|---|\n"
            "| `--max-batch-size` | `N` |  |\n"
            "\nSee there.\n");
}

TEST(FlagsPage, FlagsOfTheOtherPageAreLeftOut) {
  const std::set<std::string> elsewhere = flags_of_options_page();
  EXPECT_TRUE(elsewhere.contains("--max-batch-size"));
  EXPECT_TRUE(elsewhere.contains("--http-port")) << "of serve";
  EXPECT_FALSE(elsewhere.contains("--help"));
  const std::string text = flags_section(kCommand, elsewhere);
  EXPECT_NE(text.find("\nIt has 1 flags of [options.md](options.md), too.\n"), text.npos);
  EXPECT_EQ(text.find("Batching"), text.npos);
}

}  // namespace
}  // namespace nereid::cli
