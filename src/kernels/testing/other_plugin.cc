// A device library of the same release that was compiled with other headers: its version lacks
// their hash, and everything behind the version would be wrong.
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
