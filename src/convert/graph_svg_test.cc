// Drawings of plans: well-formed, with all calls; repeated layers are drawn once.
#include "convert/graph_svg.h"

#include <gmock/gmock.h>

#include "base/testing/source_dir.h"
#include "convert/inspect.h"
#include "kernels/ref/ref.h"

namespace nereid::convert {
namespace {

using testing::HasSubstr;
using testing::Not;

class GraphSvgTest : public testing::Test {
 protected:
  void SetUp() override { kernels::ref::add_kernels(registry_); }
  std::string draw(const std::string& model) {
    const auto drawing = draw_plan(source_dir() + "/" + model, registry_, {});
    EXPECT_TRUE(drawing.ok()) << drawing.status();
    return drawing.value_or("");
  }
  static size_t count(const std::string& text, std::string_view part) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++n;
    return n;
  }

  kernels::Registry registry_;
};

TEST_F(GraphSvgTest, LayersThatRepeatAreDrawnOnce) {
  const std::string svg = draw("models/quickstart");
  EXPECT_THAT(svg, testing::StartsWith("<svg xmlns="));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
  EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
  EXPECT_EQ(count(svg, "class=\"repeated\""), 1u);
  EXPECT_THAT(svg, HasSubstr(">5 x</text>"));
  EXPECT_THAT(svg, HasSubstr(">layers.*.attn.qkv [512, 256]</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("layers.3.")));
  // Two calls, eight for five layers, eleven for the last layer, which computes sampled rows only.
  EXPECT_THAT(svg, HasSubstr(": 53 calls"));
  EXPECT_EQ(count(svg, "class=\"call\""), 21u);
  EXPECT_GE(count(svg, "class=\"value\""), 12u);
  EXPECT_EQ(svg, draw("models/quickstart"));
}

TEST_F(GraphSvgTest, LayersThatDifferAreNot) {
  const std::string svg = draw("tests/models/qwen3_moe-dense");
  EXPECT_THAT(svg, HasSubstr("layers.0."));
}

TEST_F(GraphSvgTest, NamesAreEscaped) {
  io::Plan plan;
  plan.model.name = "a<b>&\"c\x01";
  const std::string svg = graph_svg(plan);
  EXPECT_THAT(svg, HasSubstr("a&lt;b&gt;&amp;&quot;c "));
}

}  // namespace
}  // namespace nereid::convert
