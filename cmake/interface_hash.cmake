# Writes HEADER, a C++ header with a hash over FILES, unless it is there with the same text.
# usage: cmake -DHEADER=path "-DFILES=a;b" -P interface_hash.cmake
set(hashes "")
foreach(file ${FILES})
  file(SHA256 ${file} hash)
  string(APPEND hashes "${hash}\n")
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 12 hash)
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define NEREID_INTERFACE_HASH \"${hash}\"\n")
