// See running.h.
#include "cli/process/running.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>

#include "base/file.h"
#include "base/json.h"
#include "base/json_members.h"
#include "base/log.h"

namespace nereid::cli {
namespace {

constexpr size_t kMaxNoteBytes = size_t{64} << 10;
constexpr std::string_view kEnding = ".json";

StatusOr<RunningServer> read_note(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxNoteBytes));
  ASSIGN_OR_RETURN(const json::value note, parse_json(text, 8));
  RunningServer server;
  server.pid = static_cast<int>(std::clamp<int64_t>(integer_member(note, "pid"), 0, INT32_MAX));
  server.started = integer_member(note, "started");
  server.since = integer_member(note, "since");
  server.url = text_member(note, "url");
  server.model = text_member(note, "model");
  server.source = text_member(note, "source");
  if (server.pid == 0) return invalid_argument("{}: no note of a server", path.string());
  return server;
}

}  // namespace

std::filesystem::path running_dir() { return cache_dir() / "run"; }

std::optional<int64_t> start_of_process(int pid) {
  const auto text = read_file(fmt::format("/proc/{}/stat", pid), 4096);
  if (!text.ok()) return std::nullopt;
  // Field 22; the second field, the name in parentheses, may have blanks.
  size_t at = text->rfind(')');
  for (int field = 2; field < 22 && at != text->npos; ++field) at = text->find(' ', at + 1);
  if (at == text->npos) return std::nullopt;
  int64_t ticks = 0;
  const auto [end, error] =
      std::from_chars(text->data() + at + 1, text->data() + text->size(), ticks);
  if (error != std::errc()) return std::nullopt;
  return ticks;
}

RunningNote::RunningNote(const std::filesystem::path& dir, RunningServer server) {
  server.pid = ::getpid();
  server.started = start_of_process(server.pid).value_or(0);
  server.since = static_cast<int64_t>(std::time(nullptr));
  const json::object note = {{"pid", server.pid},     {"started", server.started},
                             {"since", server.since}, {"url", server.url},
                             {"model", server.model}, {"source", server.source}};
  const std::filesystem::path path = dir / fmt::format("{}{}", server.pid, kEnding);
  if (const Status written = write_file_atomic(path, json::serialize(note) + "\n"); written.ok())
    path_ = path;
  else
    log_debug("nereid ps will not show this server: {}", message(written));
}

RunningNote::~RunningNote() {
  std::error_code error;
  if (!path_.empty()) std::filesystem::remove(path_, error);
}

std::vector<RunningServer> running_servers(const std::filesystem::path& dir) {
  std::vector<RunningServer> out;
  std::error_code error, ignored;
  for (std::filesystem::directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() != kEnding) continue;
    auto server = read_note(it->path());
    if (server.ok() && start_of_process(server->pid) == server->started)
      out.push_back(*std::move(server));
    else
      std::filesystem::remove(it->path(), ignored);
  }
  std::ranges::sort(out, {}, &RunningServer::since);
  return out;
}

}  // namespace nereid::cli
