// Dynamic protobuf messages; see messages.h.
#include "front/grpc/messages.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/json_util.h>

#include <set>

#include "base/check.h"
#include "base/log.h"
#include "front/grpc/wire.h"

namespace nereid::front {
namespace pb = google::protobuf;
namespace {

constexpr unsigned char kDescriptors[] = {
#include "grpc_descriptors.inc"
};

// Silences protobuf's log line about client text that is no UTF-8; the client gets an error.
void log_quietly(pb::LogLevel, const char*, int, const std::string& text) {
  log_debug("protobuf: {}", text);
}

std::string text_of(pb::StringPiece piece) { return std::string(piece.data(), piece.size()); }

}  // namespace

struct ProtoMessages::Impl {
  // A pool of its own: the core's library has the generated ModelConfig in the global one.
  pb::DescriptorPool pool;
  mutable pb::DynamicMessageFactory factory{&pool};
  std::vector<const pb::FileDescriptor*> files;

  std::unique_ptr<pb::Message> make(const std::string& type) const {
    const pb::Descriptor* descriptor = pool.FindMessageTypeByName(type);
    NEREID_CHECK(descriptor != nullptr);
    return std::unique_ptr<pb::Message>(factory.GetPrototype(descriptor)->New());
  }

  static void add_file(const pb::FileDescriptor* file, std::set<const pb::FileDescriptor*>& seen,
                       std::vector<std::string>& out) {
    if (!seen.insert(file).second) return;
    pb::FileDescriptorProto proto;
    file->CopyTo(&proto);
    out.push_back(proto.SerializeAsString());
    for (int i = 0; i < file->dependency_count(); ++i) add_file(file->dependency(i), seen, out);
  }

  static StatusOr<std::vector<std::string>> with_imports(const pb::FileDescriptor* file,
                                                         const std::string& name) {
    if (file == nullptr) return not_found("{} is not known", name);
    std::set<const pb::FileDescriptor*> seen;
    std::vector<std::string> out;
    add_file(file, seen, out);
    return out;
  }
};

ProtoMessages::ProtoMessages() : impl_(std::make_unique<Impl>()) {
  pb::SetLogHandler(log_quietly);
  pb::FileDescriptorSet set;
  NEREID_CHECK(set.ParseFromArray(kDescriptors, sizeof kDescriptors));
  for (const pb::FileDescriptorProto& file : set.file()) {
    const pb::FileDescriptor* built = impl_->pool.BuildFile(file);
    NEREID_CHECK(built != nullptr);
    impl_->files.push_back(built);
  }
}

ProtoMessages::~ProtoMessages() = default;

StatusOr<std::string> ProtoMessages::to_json(const std::string& type,
                                             std::string_view bytes) const {
  const auto made = impl_->make(type);
  if (!made->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return internal_error("Unable to parse request");
  }
  pb::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = pb::util::MessageToJsonString(*made, &json, options);
  if (!status.ok()) return internal_error("Unable to parse request");
  return json;
}

StatusOr<std::string> ProtoMessages::from_json(const std::string& type,
                                               std::string_view json) const {
  const auto made = impl_->make(type);
  pb::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status =
      pb::util::JsonStringToMessage(pb::StringPiece(json.data(), json.size()), made.get(), options);
  if (!status.ok()) return internal_error("{}: {}", type, text_of(status.message()));
  std::string out(kGrpcPrefixBytes, '\0');
  if (!made->AppendToString(&out)) return internal_error("{} cannot be serialised", type);
  return out;
}

StatusOr<std::vector<std::string>> ProtoMessages::file_by_name(const std::string& name) const {
  return Impl::with_imports(impl_->pool.FindFileByName(name), name);
}

StatusOr<std::vector<std::string>> ProtoMessages::file_by_symbol(const std::string& symbol) const {
  return Impl::with_imports(impl_->pool.FindFileContainingSymbol(symbol), symbol);
}

std::vector<std::string> ProtoMessages::services() const {
  std::vector<std::string> out;
  for (const pb::FileDescriptor* file : impl_->files) {
    for (int i = 0; i < file->service_count(); ++i) out.push_back(file->service(i)->full_name());
  }
  return out;
}

}  // namespace nereid::front
