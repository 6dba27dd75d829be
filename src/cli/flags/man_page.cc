// See man_page.h.
#include "cli/flags/man_page.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "absl/strings/ascii.h"

namespace nereid::cli {
namespace {

// Text as roff prints it unchanged: dashes are those of flags, and no line is a request.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '-' || c == '\\') out += c == '-' ? "\\" : "\\e";
    if (c != '\\') out += c;
  }
  return out;
}

std::string heading(const std::string& name, const std::string& help) {
  return fmt::format(
      ".TH \"{}\" 1 \"\" \"nereid {}\" \"nereid\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n",
      absl::AsciiStrToUpper(name), NEREID_VERSION, roff(name), roff(help));
}

std::string flag_entry(const FlagText& flag) {
  std::vector<std::string> names;
  for (const std::string& name : flag.names) names.push_back("\\fB" + roff(name) + "\\fR");
  const std::string value = flag.value.empty() ? "" : " \\fI" + roff(flag.value) + "\\fR";
  return fmt::format(".TP\n{}{}\n{}\n", fmt::join(names, ", "), value, roff(flag.help));
}

}  // namespace

std::string man_page(const CommandText& command) {
  std::string text = heading("nereid-" + command.name, command.help);
  text += fmt::format(".B nereid {}\n[\\fIoption\\fR ...]", roff(command.name));
  for (const FlagText& flag : command.flags)
    if (flag.is_word()) text += fmt::format(" \\fI{}\\fR", roff(flag.names[0]));
  text += "\n";
  // Positional words first, then the groups in the order of their first flags.
  std::vector<std::pair<std::string, std::string>> sections = {{"Arguments", ""}};
  for (const FlagText& flag : command.flags) {
    const std::string& title = flag.is_word() ? sections[0].first : flag.group;
    auto section = std::ranges::find(sections, title, [](const auto& s) { return s.first; });
    if (section == sections.end()) section = sections.insert(section, {title, ""});
    section->second += flag_entry(flag);
  }
  for (const auto& [title, entries] : sections)
    if (!entries.empty())
      text += fmt::format(".SH {}\n{}", roff(absl::AsciiStrToUpper(title)), entries);
  if (!command.notes.empty()) text += ".SH NOTES\n" + roff(command.notes) + "\n";
  return text + ".SH SEE ALSO\n.BR nereid (1)\n";
}

std::string man_page_of_all(const std::string& description, std::span<const CommandText> commands) {
  std::string text = heading("nereid", "serve large language models on CPUs and NVIDIA GPUs");
  text += ".B nereid\n\\fIcommand\\fR [\\fIoption\\fR ...]\n.SH DESCRIPTION\n" + roff(description);
  text += "\n.SH COMMANDS\n";
  for (const CommandText& command : commands)
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(command.name), roff(command.help));
  text += ".SH ENVIRONMENT\n";
  for (const auto& [name, meaning] :
       {std::pair{
            "NEREID_CACHE_DIR",
            "folder of built engines and of models that were pulled; default: ~/.cache/nereid"},
        std::pair{"HF_TOKEN, HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE",
                  "token, address, cache and offline mode for hf:// (docs/hub.md)"},
        std::pair{"NEREID_CONFIG",
                  "file with options of serve; default: ~/.config/nereid/nereid.toml"},
        std::pair{"NEREID_PROGRESS", "0: no progress bars"},
        std::pair{"NEREID_CUDA_LIBRARY", "libnereid_cuda.so, where it is not beside the program"},
        std::pair{"NEREID_MAX_BATCH_SIZE=8",
                  "is --max-batch-size 8, and so on for each flag of serve that has a group"}})
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", name, roff(meaning));
  text += ".SH SEE ALSO\n";
  for (const CommandText& command : commands)
    text += fmt::format(".BR nereid-{} (1){}\n", roff(command.name),
                        &command == &commands.back() ? "" : ",");
  return text;
}

}  // namespace nereid::cli
