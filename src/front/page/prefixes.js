
// The prefix tree of the KV cache: tokens from left to right, a bar for each run of blocks, what
// continues a prefix to its right.

const kMostLeaves = 48;
const kRunKinds = { held: "held by sequences", kept: "kept for later", host: "in the host pool" };

const kindOfRun = ({ holders, tier }) => (holders > 0 ? "held" : tier === "host" ? "host" : "kept");
const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

function runText({ before, tokens, blocks, holders, tier }) {
  const use = holders > 0 ? `held by ${counted(holders, "sequence")}` : "kept for later";
  return `Tokens ${before + 1} to ${before + tokens}: ${counted(blocks, "block")} on the ${tier}, ${use}`;
}

// Runs with the tokens before them, their first row and their number of rows (leaves), in the
// order in which they are drawn.
function placed(tree, firstRow) {
  const runs = tree.runs.map(([parent, tokens, blocks, holders, tier]) => ({ parent, tokens, blocks, holders, tier, before: 0, rows: 0, below: [] }));
  const roots = [];
  for (const run of runs) {
    if (run.parent >= 0) run.before = runs[run.parent].before + runs[run.parent].tokens;
    (run.parent >= 0 ? runs[run.parent].below : roots).push(run);
  }
  for (const run of runs.toReversed()) run.rows = Math.max(1, run.below.reduce((sum, { rows }) => sum + rows, 0));
  const out = [], open = roots.toReversed();
  let row = firstRow;
  while (open.length > 0) {
    const run = open.pop();
    out.push(Object.assign(run, { row, instance: tree.instance }));
    if (run.below.length === 0) ++row;
    open.push(...run.below.toReversed());
  }
  return out;
}

class PrefixView {
  constructor(model) {
    this.model = model;
    this.drawing = svg("svg", { class: "bars", preserveAspectRatio: "none", role: "img" });
    this.most = el("span");
    this.state = el("span", { class: "muted" });
    this.rows = el("tbody");
    const mark = (kind) => svg("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, svg("rect", { class: kind, width: 26, height: 10 }));
    this.node = el("figure", { class: "prefixes" }, el("figcaption", {}, `Prefix tree of ${model}, each run of cached blocks a bar`), this.drawing,
      el("div", { class: "scale" }, el("span", {}, "first token"), this.most),
      el("ul", { class: "legend" }, ...Object.entries(kRunKinds).map(([kind, text]) => el("li", {}, mark(kind), text))), this.state,
      el("details", {}, el("summary", {}, "Prefixes as a table"), el("div", { class: "wide" }, el("table", {},
        el("thead", {}, el("tr", {}, ...["Tokens", "Blocks", "Tier", "Held by", "Instance"].map((name) => el("th", { scope: "col" }, name)))),
        this.rows))));
  }
  draw({ instances }) {
    const all = [];
    for (const tree of instances) all.push(...placed(tree, all.length === 0 ? 0 : all.at(-1).row + 1));
    const shown = all.filter(({ row }) => row < kMostLeaves);
    const most = Math.max(1, ...shown.map(({ before, tokens }) => before + tokens));
    const height = Math.max(1, ...shown.map(({ row, rows }) => Math.min(row + rows, kMostLeaves)));
    const line = kBarHeight + kBarGap;
    this.drawing.setAttribute("viewBox", `0 0 ${kWidth} ${height * line}`);
    this.drawing.style.setProperty("height", `${height * line * 1.5}px`);
    this.drawing.replaceChildren(...shown.map((run) => svg("rect", {
      class: kindOfRun(run), x: ((kWidth * run.before) / most).toFixed(2), y: run.row * line,
      width: Math.max(0.4, (kWidth * run.tokens) / most - 0.4).toFixed(2),
      height: Math.min(run.rows, kMostLeaves - run.row) * line - kBarGap,
    }, svg("title", {}, runText(run)))));
    const sum = (name) => instances.reduce((total, tree) => total + tree[name], 0);
    const held = all.reduce((total, { holders, blocks }) => total + (holders > 0 ? blocks : 0), 0);
    const hidden = sum("left_out") + all.filter(({ row }) => row >= kMostLeaves).reduce((total, { blocks }) => total + blocks, 0);
    const ages = instances.map(({ age_ms }) => age_ms);
    const text = ages.includes(null) || ages.length === 0 ? "Not outlined yet." : all.length === 0 ? "No prefix is cached."
      : `${counted(sum("blocks"), "block")} of ${instances[0].tokens_per_block} tokens, ${held} held` + (hidden > 0 ? `; ${hidden} are not shown` : "") +
        `; as of ${(Math.max(...ages) / 1000).toFixed(1)} s ago`;
    this.most.textContent = all.length === 0 ? "" : `token ${most}`;
    this.state.textContent = text;
    this.drawing.setAttribute("aria-label", `Prefix tree of ${this.model}: ${text}`);
    this.rows.replaceChildren(...shown.map((run) => el("tr", {}, el("th", { scope: "row" }, `${run.before + 1} to ${run.before + run.tokens}`),
      ...[run.blocks, run.tier, run.holders, run.instance].map((value) => el("td", {}, String(value))))));
  }
}
