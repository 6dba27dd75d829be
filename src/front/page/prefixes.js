
// The prefix tree of the KV cache: each run of cached blocks a bar, as long as its tokens, in front of what continues it.

const kMostLeaves = 32;
const kPrefixKinds = { held: "used by running sequences", cached: "on the device", host: "in host memory" };

const kindOfRun = (run) => (run.held_blocks > 0 ? "held" : run.device_blocks > 0 ? "cached" : "host");

class PrefixView {
  constructor(model) {
    this.model = model;
    this.drawing = svg("svg", { class: "bars", preserveAspectRatio: "none", role: "img" });
    const mark = (kind) => svg("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, svg("rect", { class: kind, width: 26, height: 10 }));
    this.end = el("span");
    this.state = el("span", { class: "muted" });
    this.rows = el("tbody");
    this.node = el("figure", {}, el("figcaption", {}, `Prefixes in the cache of ${model}`), this.drawing,
      el("div", { class: "scale" }, el("span", {}, "first token"), this.end),
      el("ul", { class: "legend" }, ...Object.entries(kPrefixKinds).map(([kind, meaning]) => el("li", {}, mark(kind), meaning))), this.state,
      el("details", {}, el("summary", {}, "Prefixes as a table"), el("div", { class: "wide" }, el("table", {},
        el("thead", {}, el("tr", {}, ...["Run", "Continues", "Tokens", "Blocks on the device", "in host memory", "used"].map((name) => el("th", { scope: "col" }, name)))),
        this.rows))));
  }
  // Runs with `begin` in tokens and `row`, and the number of rows; a run stands in the row of the first one behind it.
  // Runs come behind those that they continue.
  static place(runs) {
    const placed = runs.map((run, index) => ({ ...run, index, begin: 0, row: 0, children: [] }));
    const first = [];
    for (const run of placed) {
      const parent = placed[run.parent];
      if (parent) run.begin = parent.begin + parent.tokens;
      (parent ? parent.children : first).push(run);
    }
    let row = 0;
    const stack = first.reverse();
    while (stack.length > 0) {
      const run = stack.pop();
      run.row = row;
      if (run.children.length === 0) row++;
      stack.push(...run.children.reverse());
    }
    return [placed, row];
  }
  draw({ runs, left_out: leftOut }) {
    this.node.hidden = runs.length === 0;
    const [placed, numRows] = PrefixView.place(runs);
    const shown = placed.filter(({ row }) => row < kMostLeaves);
    const length = Math.max(1, ...shown.map(({ begin, tokens }) => begin + tokens));
    const line = kBarHeight + kBarGap, height = Math.max(1, Math.min(numRows, kMostLeaves)) * line;
    this.drawing.setAttribute("viewBox", `0 0 ${kWidth} ${height}`);
    this.drawing.style.setProperty("height", `${height * 1.5}px`);
    this.drawing.replaceChildren(...shown.map((run) => svg("rect", { class: kindOfRun(run), x: (kWidth * run.begin / length).toFixed(2), y: run.row * line,
      width: Math.max(0.4, kWidth * run.tokens / length - 0.5).toFixed(2), height: kBarHeight },
    svg("title", {}, `${run.tokens} tokens from ${run.begin} on: ${run.device_blocks} blocks on the device, ${run.host_blocks} in host memory, ${run.held_blocks} used`))));
    this.end.textContent = `${length} tokens`;
    const blocks = runs.reduce((sum, run) => sum + run.device_blocks + run.host_blocks, 0);
    const state = `${blocks} blocks in ${runs.length} runs`;
    this.drawing.setAttribute("aria-label", `Prefixes in the cache of ${this.model}: ${state}`);
    this.state.textContent = state + (leftOut > 0 ? `; ${leftOut} more blocks are not shown` : "");
    this.rows.replaceChildren(...placed.map((run) => el("tr", {}, el("th", { scope: "row" }, String(run.index)), el("td", {}, run.parent < 0 ? "–" : String(run.parent)),
      ...[run.tokens, run.device_blocks, run.host_blocks, run.held_blocks].map((number) => el("td", {}, String(number))))));
  }
}
