// Command lines in the manner of Python's argparse, which the replaced scripts used: long options
// with "=" or a blank, unambiguous prefixes, options anywhere between the positional words.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace nereid::cli {

struct ArgumentSpec {
  const char* name;        // "--in_place"
  const char* short_name;  // "-i" or ""
  const char* value;       // placeholder of its value in the help text; "" = a switch
  const char* help;
};

struct ParsedArguments {
  std::map<std::string, std::string, std::less<>> options;  // long name -> last value; switch: ""
  std::vector<std::string> words;
  bool wants_help = false;

  bool has(std::string_view name) const { return options.contains(name); }
  std::string value(std::string_view name, std::string_view otherwise) const {
    const auto it = options.find(name);
    return it == options.end() ? std::string(otherwise) : it->second;
  }
};

// InvalidArgument names the word: unknown, ambiguous, a value missing or not expected.
StatusOr<ParsedArguments> parse_arguments(const std::vector<ArgumentSpec>& specs, int argc,
                                          char** argv);

// "usage: NAME <words>" and a line for each option.
std::string usage_text(std::string_view name, std::string_view words,
                       const std::vector<ArgumentSpec>& specs);

}  // namespace nereid::cli
