// Handlers of control rpcs, as functions on generated messages.
#pragma once

#include <string>
#include <string_view>

#include "front/grpc/control.h"
#include "front/grpc/wire.h"

namespace nereid::front {

template <class Request>
Status parse_request(std::string_view bytes, Request& request) {
  return request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))
             ? ok()
             : internal_error("Unable to parse request");
}

template <class Request, class Response>
ControlHandler handler_of(Status (*run)(const ControlContext&, const Request&, Response&)) {
  return [run](const ControlContext& context, std::string_view bytes) -> StatusOr<std::string> {
    Request request;
    RETURN_IF_ERROR(parse_request(bytes, request));
    Response response;
    RETURN_IF_ERROR(run(context, request, response));
    std::string out(kGrpcPrefixBytes, '\0');
    if (!response.AppendToString(&out)) return internal_error("an answer that is no valid UTF-8");
    return out;
  };
}

// A handler whose response is JSON of the core; `response_type` is its message's full name.
template <class Request>
ControlHandler handler_of(const char* response_type,
                          StatusOr<std::string> (*run)(const ControlContext&, const Request&)) {
  return [=](const ControlContext& context, std::string_view bytes) -> StatusOr<std::string> {
    Request request;
    RETURN_IF_ERROR(parse_request(bytes, request));
    ASSIGN_OR_RETURN(const std::string text, run(context, request));
    return context.messages.from_json(response_type, text);
  };
}

}  // namespace nereid::front
