// A device library of the same release compiled with other headers: its version lacks their hash;
// members after the version are invalid.
namespace {

struct OtherPlugin {
  const char* version = NEREID_VERSION;
  void* others[3] = {};
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const void* nereid_device_plugin() {
  static const OtherPlugin plugin;
  return &plugin;
}
