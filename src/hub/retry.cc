// See retry.h.
#include "hub/retry.h"

#include <absl/status/status.h>

#include <algorithm>
#include <thread>

#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "hub/text.h"

namespace nereid::hub {
namespace {

// Sleeps; false: stopped meanwhile.
bool pause(const Shared& shared, std::chrono::milliseconds time) {
  for (const Time end = now() + time; now() < end;
       std::this_thread::sleep_for(std::chrono::milliseconds(20)))
    if (shared.is_cancelled || shared.has_failed) return false;
  return true;
}

// The hub's own words for an error, in {"error": "..."}.
std::string words_of(const Reply& reply) {
  const auto parsed = parse_json(reply.body, 16);
  const json::object* const object = parsed.ok() ? parsed->if_object() : nullptr;
  const json::value* const error = object ? object->if_contains("error") : nullptr;
  if (!error || !error->is_string()) return "";
  return fmt::format(" (the hub: {})", quoted_name(std::string(error->get_string())));
}

Status denied(const Reply& reply, const HubSettings& settings, const std::string& what) {
  const std::string words = words_of(reply);
  if (reply.error_code == "GatedRepo" || reply.status == 403) {
    const std::string advice =
        settings.token.empty()
            ? "accept its terms on the hub's page, then set HF_TOKEN"
            : fmt::format("the token of {} has no access: accept the terms on the hub's page",
                          settings.token_source);
    return absl::PermissionDeniedError(
        fmt::format("{}: access is restricted; {}{}", what, advice, words));
  }
  if (settings.token.empty())
    return absl::PermissionDeniedError(fmt::format(
        "{}: there is no such model, or it is private or gated: check the name, or set HF_TOKEN to "
        "a token of an account with access{}",
        what, words));
  return absl::PermissionDeniedError(
      fmt::format("{}: there is no such model, or the token of {} is invalid or has no access{}",
                  what, settings.token_source, words));
}

}  // namespace

std::optional<std::chrono::seconds> retry_after(const std::string& text,
                                                const HubSettings& settings) {
  if (text.empty()) return std::nullopt;
  const auto number = number_in(text);
  if (!number) return settings.longest_wait;
  return std::chrono::seconds(std::min<int64_t>(*number, 1'000'000));
}

Attempt judge(const Reply& reply, const HubSettings& settings, const std::string& what) {
  const int status = reply.status;
  if (status == 200 || status == 206) return {ok()};
  if (status == 401 || status == 403) return {denied(reply, settings, what)};
  if (status == 404 || status == 410) {
    if (reply.error_code == "RevisionNotFound")
      return {not_found("{}: the model has no such revision", what)};
    return {not_found("{}: the hub has nothing of that name{}", what, words_of(reply))};
  }
  const auto wait = retry_after(reply.retry_after, settings);
  if (status == 429)
    return {unavailable("{}: too many requests, says the hub; {}{}", what,
                        settings.token.empty() ? "with a token (HF_TOKEN) more are allowed"
                                               : "try again later",
                        words_of(reply)),
            true, wait};
  if (status >= 500 || status == 408)
    return {unavailable("{}: the hub answers {}{}", what, status, words_of(reply)), true, wait};
  return {invalid_argument("{}: the hub answers {}{}", what, status, words_of(reply))};
}

Status repeat(Shared& shared, const std::function<Attempt()>& attempt) {
  const HubSettings& settings = shared.settings;
  auto wait = settings.first_wait;
  for (int number = 1;; ++number) {
    const Attempt made = attempt();
    if (made.status.ok() || absl::IsCancelled(made.status)) return made.status;
    if (shared.is_cancelled || shared.has_failed) return cancelled("stopped");
    if (!made.may_repeat) return made.status;
    if (made.has_progress) {
      number = 1;
      wait = settings.first_wait;
    }
    if (number >= settings.attempts)
      return annotate(made.status, fmt::format("after {} attempts", number));
    const auto asked = std::chrono::milliseconds(made.wait.value_or(std::chrono::seconds(0)));
    if (asked > settings.longest_wait)
      return unavailable("{}; it asks to wait for {}, which is longer than {}",
                         message(made.status),
                         duration_text(static_cast<double>(made.wait->count())),
                         duration_text(static_cast<double>(settings.longest_wait.count())));
    const auto time = std::max(wait, asked);
    log_warn("{}; again in {:.1f} s", message(made.status),
             static_cast<double>(time.count()) / 1000);
    if (!pause(shared, time)) return cancelled("stopped");
    wait *= 2;
  }
}

}  // namespace nereid::hub
