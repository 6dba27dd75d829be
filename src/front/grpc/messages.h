// Messages by type name, as JSON, for responses that the core gives in JSON, and for reflection.
// They are protobuf's dynamic messages, built from the compiled descriptors of proto/.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace nereid::front {

class ProtoMessages {
 public:
  ProtoMessages();
  ~ProtoMessages();
  ProtoMessages(const ProtoMessages&) = delete;
  ProtoMessages& operator=(const ProtoMessages&) = delete;

  // The JSON form (protobuf's mapping, with the field names of the .proto files) of a message of
  // `type`, such as "inference.ModelReadyRequest". Internal: malformed bytes.
  StatusOr<std::string> to_json(const std::string& type, std::string_view bytes) const;

  // The serialised message of a JSON text, behind kGrpcPrefixBytes of room. Unknown
  // members are skipped.
  StatusOr<std::string> from_json(const std::string& type, std::string_view json) const;

  // For reflection: a file by its name or by a symbol in it, as a serialised FileDescriptorProto,
  // followed by the files that it imports. NotFound.
  StatusOr<std::vector<std::string>> file_by_name(const std::string& name) const;
  StatusOr<std::vector<std::string>> file_by_symbol(const std::string& symbol) const;
  // Full names of all services.
  std::vector<std::string> services() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nereid::front
