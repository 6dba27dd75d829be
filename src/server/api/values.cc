// Names of enumerations, parameters, JSON messages and buffer attributes of the C API.
#include "server/api/values.h"

#include <cstring>
#include <string_view>

#include "base/json.h"
#include "server/api/accessors.h"
#include "server/api/error.h"

using nereid::server::enum_name;
using nereid::server::to_error;

namespace {

struct TypeRow {
  const char* name;
  uint32_t bytes;
};
// Rows by TRITONSERVER_DataType.
constexpr TypeRow kTypes[] = {{"<invalid>", 0}, {"BOOL", 1},   {"UINT8", 1}, {"UINT16", 2},
                              {"UINT32", 4},    {"UINT64", 8}, {"INT8", 1},  {"INT16", 2},
                              {"INT32", 4},     {"INT64", 8},  {"FP16", 2},  {"FP32", 4},
                              {"FP64", 8},      {"BYTES", 0},  {"BF16", 2}};

}  // namespace

const void* TRITONSERVER_Parameter::pointer() const {
  switch (value.index()) {
    case 0:
      return std::get<0>(value).c_str();
    case 1:
      return &std::get<1>(value);
    case 2:
      return &std::get<2>(value);
    case 3:
      return &std::get<3>(value);
    default:
      return std::get<4>(value).base;
  }
}

TRITONSERVER_Error* TRITONSERVER_ApiVersion(uint32_t* major, uint32_t* minor) {
  *major = TRITONSERVER_API_VERSION_MAJOR;
  *minor = TRITONSERVER_API_VERSION_MINOR;
  return nullptr;
}

const char* TRITONSERVER_DataTypeString(TRITONSERVER_DataType datatype) {
  return static_cast<size_t>(datatype) < std::size(kTypes) ? kTypes[datatype].name : kTypes[0].name;
}

TRITONSERVER_DataType TRITONSERVER_StringToDataType(const char* dtype) {
  for (size_t i = 1; i < std::size(kTypes); ++i) {
    if (std::string_view(dtype) == kTypes[i].name) return static_cast<TRITONSERVER_DataType>(i);
  }
  return TRITONSERVER_TYPE_INVALID;
}

uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType datatype) {
  return static_cast<size_t>(datatype) < std::size(kTypes) ? kTypes[datatype].bytes : 0;
}

const char* TRITONSERVER_MemoryTypeString(TRITONSERVER_MemoryType memtype) {
  return enum_name({"CPU", "CPU_PINNED", "GPU"}, memtype, "<invalid>");
}

const char* TRITONSERVER_ParameterTypeString(TRITONSERVER_ParameterType paramtype) {
  return enum_name({"STRING", "INT", "BOOL", "DOUBLE", "BYTES"}, paramtype, "<invalid>");
}

const char* TRITONSERVER_InstanceGroupKindString(TRITONSERVER_InstanceGroupKind kind) {
  return enum_name({"AUTO", "CPU", "GPU", "MODEL"}, kind, "<invalid>");
}

TRITONSERVER_Parameter* TRITONSERVER_ParameterNew(const char* name,
                                                  const TRITONSERVER_ParameterType type,
                                                  const void* value) {
  switch (type) {
    case TRITONSERVER_PARAMETER_STRING:
      return new TRITONSERVER_Parameter{name, std::string(static_cast<const char*>(value))};
    case TRITONSERVER_PARAMETER_INT:
      return new TRITONSERVER_Parameter{name, *static_cast<const int64_t*>(value)};
    case TRITONSERVER_PARAMETER_BOOL:
      return new TRITONSERVER_Parameter{name, *static_cast<const bool*>(value)};
    case TRITONSERVER_PARAMETER_DOUBLE:
      return new TRITONSERVER_Parameter{name, *static_cast<const double*>(value)};
    default:
      return nullptr;
  }
}

TRITONSERVER_Parameter* TRITONSERVER_ParameterBytesNew(const char* name, const void* byte_ptr,
                                                       const uint64_t size) {
  return new TRITONSERVER_Parameter{name, TRITONSERVER_Parameter::Bytes{byte_ptr, size}};
}

void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter* parameter) { delete parameter; }

TRITONSERVER_Error* TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message** message,
                                                              const char* base,
                                                              size_t byte_size) try {
  const std::string_view text(base, byte_size);
  if (auto parsed = nereid::parse_json(text); !parsed.ok()) return to_error(parsed.status());
  *message = new TRITONSERVER_Message{std::string(text)};
  return nullptr;
}
NEREID_CATCH

NEREID_DELETER(TRITONSERVER_MessageDelete, TRITONSERVER_Message, x)

TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message* message,
                                                        const char** base, size_t* byte_size) {
  *base = message->text.data();
  *byte_size = message->text.size();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesNew(
    TRITONSERVER_BufferAttributes** attributes) try {
  *attributes = new TRITONSERVER_BufferAttributes;
  return nullptr;
}
NEREID_CATCH

NEREID_DELETER(TRITONSERVER_BufferAttributesDelete, TRITONSERVER_BufferAttributes, x)
NEREID_SETTER(TRITONSERVER_BufferAttributesSetMemoryTypeId, TRITONSERVER_BufferAttributes, int64_t,
              x->memory_type_id = value)
NEREID_SETTER(TRITONSERVER_BufferAttributesSetMemoryType, TRITONSERVER_BufferAttributes,
              TRITONSERVER_MemoryType, x->memory_type = value)

TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetCudaIpcHandle(
    TRITONSERVER_BufferAttributes* attributes, void* cuda_ipc_handle) try {
  attributes->cuda_ipc_handle.reset();
  if (cuda_ipc_handle == nullptr) return nullptr;
  auto& handle = attributes->cuda_ipc_handle.emplace();
  std::memcpy(handle.data(), cuda_ipc_handle, handle.size());
  return nullptr;
}
NEREID_CATCH

NEREID_SETTER(TRITONSERVER_BufferAttributesSetByteSize, TRITONSERVER_BufferAttributes, size_t,
              x->byte_size = value)
NEREID_GETTER(TRITONSERVER_BufferAttributesMemoryTypeId, TRITONSERVER_BufferAttributes, int64_t,
              x->memory_type_id)
NEREID_GETTER(TRITONSERVER_BufferAttributesMemoryType, TRITONSERVER_BufferAttributes,
              TRITONSERVER_MemoryType, x->memory_type)
NEREID_GETTER(TRITONSERVER_BufferAttributesCudaIpcHandle, TRITONSERVER_BufferAttributes, void*,
              x->cuda_ipc_handle ? x->cuda_ipc_handle->data() : nullptr)
NEREID_GETTER(TRITONSERVER_BufferAttributesByteSize, TRITONSERVER_BufferAttributes, size_t,
              x->byte_size)
