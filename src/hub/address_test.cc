#include "hub/address.h"

#include <gtest/gtest.h>

namespace nereid::hub {
namespace {

TEST(Address, ReachOfLiterals) {
  const std::pair<const char*, Reach> kCases[] = {{"8.8.8.8", Reach::kPublic},
                                                  {"172.32.0.1", Reach::kPublic},
                                                  {"10.1.2.3", Reach::kPrivate},
                                                  {"172.31.255.255", Reach::kPrivate},
                                                  {"192.168.0.1", Reach::kPrivate},
                                                  {"100.64.0.1", Reach::kPrivate},
                                                  {"127.0.0.1", Reach::kLoopback},
                                                  {"127.1", Reach::kLoopback},
                                                  {"0x7f000001", Reach::kLoopback},
                                                  {"2130706433", Reach::kLoopback},
                                                  {"0.0.0.0", Reach::kLoopback},
                                                  {"169.254.169.254", Reach::kLinkLocal},
                                                  {"224.0.0.1", Reach::kLinkLocal},
                                                  {"255.255.255.255", Reach::kLinkLocal},
                                                  {"[::1]", Reach::kLoopback},
                                                  {"::", Reach::kLoopback},
                                                  {"[::ffff:10.0.0.1]", Reach::kPrivate},
                                                  {"::ffff:169.254.169.254", Reach::kLinkLocal},
                                                  {"::127.0.0.1", Reach::kLoopback},
                                                  {"64:ff9b::a9fe:a9fe", Reach::kLinkLocal},
                                                  {"2002:7f00:1::", Reach::kLoopback},
                                                  {"fd00::1", Reach::kPrivate},
                                                  {"fe80::1%eth0", Reach::kLinkLocal},
                                                  {"ff02::1", Reach::kLinkLocal},
                                                  {"2606:4700::1111", Reach::kPublic}};
  for (const auto& [host, reach] : kCases) EXPECT_EQ(reach_of_literal(host), reach) << host;
  EXPECT_EQ(reach_of_literal("huggingface.co"), std::nullopt);
  EXPECT_EQ(reach_of_literal("localhost"), std::nullopt);
}

}  // namespace
}  // namespace nereid::hub
