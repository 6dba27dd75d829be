#include "convert/graph_svg.h"

#include <algorithm>
#include <map>
#include <variant>
#include <vector>

namespace nereid::convert {
namespace {

using io::kNone;

constexpr size_t kMaxPeriod = 256;  // maximum number of calls in a repeated block
constexpr int kLeft = 48, kWidth = 520, kBoxHeight = 40, kLine = 16, kLane = 12, kTop = 40;

// Text of a call.
struct Step {
  std::string title;                 // "linear avx512"
  std::vector<std::string> weights;  // "layers.*.attn.qkv [1152, 896]"
  std::vector<io::ValueId> reads, makes;
  std::string signature;  // equal for calls that differ in the layer index only
};

// Steps [first, first + size), repeated `times` times.
struct Block {
  size_t first = 0, size = 0, times = 1;
};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

// "layers.12.mlp" -> "layers.*.mlp"
std::string without_number(std::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size();) {
    const size_t end = std::min(name.find('.', i), name.size());
    const std::string_view part = name.substr(i, end - i);
    const bool is_number =
        !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    out += is_number ? "*" : part;
    if (end < name.size()) out += '.';
    i = end + 1;
  }
  return out;
}

std::string shape_of(const io::Value& value) {
  return fmt::format("[{}, {}] {}", value.extent == io::RowCount::kTokens ? "tokens" : "sampled",
                     value.cols, name_of(value.dtype));
}

std::string shape_of(const io::PlanWeight& weight) {
  const std::string experts = weight.experts > 1 ? fmt::format("{}, ", weight.experts) : "";
  const std::string format = weight.format.is_float() ? "" : " " + kernels::text_of(weight.format);
  return fmt::format("[{}{}, {}]{}", experts, weight.n, weight.k, format);
}

Step step_of(const io::Plan& plan, const io::Call& call) {
  Step step;
  step.title = std::string(io::name_of(call.op)) + (call.kernel.empty() ? "" : "  ") + call.kernel;
  step.signature = step.title;
  std::visit(
      [&]<class Op>(const Op& op) {
        kernels::for_fields(op, [&](const auto& field, const auto& x) {
          using kernels::Role;
          constexpr Role kRole = std::remove_cvref_t<decltype(field)>::kRole;
          if constexpr (kRole == Role::kIn || kRole == Role::kOut) {
            if (x == kNone) return;
            (kRole == Role::kIn ? step.reads : step.makes).push_back(x);
            step.signature +=
                kRole == Role::kIn ? "|in" : "|" + without_number(plan.values[x].name);
            step.signature += shape_of(plan.values[x]);
          } else if constexpr (kRole == Role::kMatrix || kRole == Role::kVector) {
            if (x == kNone) return;
            step.weights.push_back(plan.weights[x].name + " " + shape_of(plan.weights[x]));
            step.signature += "|" + without_number(step.weights.back());
          }
        });
      },
      call.op);
  return step;
}

// The repetition starting at `first` that covers the most steps; a single step if nothing repeats.
Block block_at(const std::vector<Step>& steps, size_t first) {
  Block best{first, 1, 1};
  const size_t left = steps.size() - first;
  for (size_t period = 1; period <= std::min(kMaxPeriod, left / 2); ++period) {
    size_t same = 0;
    while (period + same < left &&
           steps[first + same].signature == steps[first + period + same].signature)
      ++same;
    const size_t times = 1 + same / period;
    if (times > 1 && times * period > best.size * best.times) best = {first, period, times};
  }
  return best;
}

class Drawing {
 public:
  explicit Drawing(const io::Plan& plan) : plan_(plan) {
    for (const io::Call& call : plan.calls) steps_.push_back(step_of(plan, call));
    row_of_.resize(steps_.size());
  }

  std::string draw() {
    int y = kTop;
    for (size_t first = 0; first < steps_.size();) {
      const Block block = block_at(steps_, first);
      const int top = y;
      for (size_t i = 0; i < block.size; ++i) y = draw_step(first + i, block.times > 1, y);
      if (block.times > 1) draw_frame(top, y, block.times);
      for (size_t i = 0; i < block.size * block.times; ++i)
        row_of_[first + i] = first + i % block.size;
      first += block.size * block.times;
    }
    draw_edges();
    const int width = kLeft + kWidth + kLane * (static_cast<int>(lanes_.size()) + 3);
    const std::string head =
        escaped(fmt::format("{} ({}), {} {}: {} calls", plan_.model.name, plan_.model.architecture,
                            plan_.device, plan_.target, steps_.size()));
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 "
               "0 "
               "{0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
               "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
               "<text x=\"{2}\" y=\"24\" font-size=\"14\">{3}</text>\n",
               width, y + kLine, kLeft, head) +
           body_ + "</svg>\n";
  }

 private:
  void text(int x, int y, std::string_view color, std::string_view words) {
    body_ +=
        fmt::format("<text x=\"{}\" y=\"{}\" fill=\"{}\">{}</text>\n", x, y, color, escaped(words));
  }

  // Draws step `i` at `y`; returns the y of the next step.
  int draw_step(size_t i, bool repeated, int y) {
    const Step& step = steps_[i];
    const auto shown = [&](const std::string& name) {
      return repeated ? without_number(name) : name;
    };
    const int height = kBoxHeight + kLine * (static_cast<int>(step.weights.size()) - 1);
    body_ += fmt::format(
        "<rect class=\"call\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\" "
        "fill=\"#eef3fa\" stroke=\"#456\"/>\n",
        kLeft, y, kWidth, height);
    text(kLeft + 8, y + kLine, "black", step.title);
    int line = y + 2 * kLine;
    for (const std::string& weight : step.weights) {
      text(kLeft + 8, line, "#555", shown(weight));
      line += kLine;
    }
    middle_[i] = y + height / 2;
    y += height;
    for (const io::ValueId id : step.makes) {
      y += kLine;
      text(kLeft + 24, y - 3, "#275",
           shown(plan_.values[id].name) + " " + shape_of(plan_.values[id]));
    }
    return y + 10;
  }

  void draw_frame(int top, int bottom, size_t times) {
    body_ += fmt::format(
        "<rect class=\"repeated\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" "
        "stroke=\"#a40\" stroke-dasharray=\"6 3\"/>\n",
        kLeft - 8, top - 5, kWidth + 16, bottom - top - 1);
    text(4, top + kLine, "#a40", fmt::format("{} x", times));
  }

  // A line on the right from each value's writer to its last reader, with branches to all readers.
  void draw_edges() {
    std::map<io::ValueId, size_t> made;
    std::map<std::pair<size_t, size_t>, bool> done;
    for (size_t i = 0; i < steps_.size(); ++i) {
      for (const io::ValueId id : steps_[i].reads) {
        const auto from = made.find(id);
        if (from == made.end() || row_of_[i] != i) continue;
        const size_t maker = row_of_[from->second];
        if (maker < i && !std::exchange(done[{maker, i}], true)) draw_edge(maker, i);
      }
      for (const io::ValueId id : steps_[i].makes) made[id] = i;
    }
  }

  void draw_edge(size_t from, size_t to) {
    const int y1 = middle_[from] + 4, y2 = middle_[to] - 4;
    auto lane = std::find_if(lanes_.begin(), lanes_.end(), [&](int end) { return end < y1; });
    if (lane == lanes_.end()) lane = lanes_.insert(lane, 0);
    *lane = y2;
    const int right = kLeft + kWidth;
    const int x = right + kLane * (static_cast<int>(lane - lanes_.begin()) + 2);
    body_ += fmt::format(
        "<path class=\"value\" d=\"M{0} {1} H{2} V{3} H{0} m6 -3 l-6 3 l6 3\" fill=\"none\" "
        "stroke=\"#275\"/>\n",
        right, y1, x, y2);
  }

  const io::Plan& plan_;
  std::vector<Step> steps_;
  std::vector<size_t> row_of_;  // drawn step by call
  std::map<size_t, int> middle_;
  std::vector<int> lanes_;  // y of the end of the last line, by lane
  std::string body_;
};

}  // namespace

std::string graph_svg(const io::Plan& plan) { return Drawing(plan).draw(); }

}  // namespace nereid::convert
