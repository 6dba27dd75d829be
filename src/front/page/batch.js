
// The batch over time: a bar for each sequence, with what it did when.

const kBatchSeconds = 30, kMostBars = 48, kBarHeight = 8, kBarGap = 3;
const kBatchKinds = ["queued", "prefill", "decode", "paused"];

// Spans as [kind, begin, end, tokens], begin and end in milliseconds before now.
function spanText([kind, begin, end, tokens]) {
  const time = `${((begin - end) / 1000).toFixed(2)} s`;
  if (kind === "prefill") return `prefill, ${tokens} tokens in ${time}`;
  return kind === "decode" ? `decode, ${tokens} tokens in ${time}` : `${kind}, ${time}`;
}

class BatchView {
  constructor(model) {
    this.model = model;
    this.drawing = svg("svg", { class: "bars", preserveAspectRatio: "none", role: "img" });
    const mark = (kind) => svg("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, svg("rect", { class: kind, width: 26, height: 10 }));
    this.since = el("span");
    this.state = el("span", { class: "muted" });
    this.rows = el("tbody");
    this.node = el("figure", { class: "batch" }, el("figcaption", {}, `Batch of ${model}, each sequence a bar`), this.drawing,
      el("div", { class: "scale" }, this.since, el("span", {}, "now")),
      el("ul", { class: "legend" }, ...kBatchKinds.map((kind) => el("li", {}, mark(kind), kind))), this.state,
      el("details", {}, el("summary", {}, "Sequences as a table"), el("div", { class: "wide" }, el("table", {},
        el("thead", {}, el("tr", {}, ...["Sequence", "Prompt", "Generated", "What it did"].map((name) => el("th", { scope: "col" }, name)))),
        this.rows))));
  }
  // The newest sequences that did something within kBatchSeconds, oldest first. Where they are too many, the time shown is
  // that of the newest kMostBars.
  draw(timeline) {
    const shown = timeline.sequences.filter(({ spans }) => spans.some(([, , end]) => end < 1000 * kBatchSeconds));
    const bars = shown.slice(-kMostBars);
    const begins = bars.length < shown.length ? bars.flatMap(({ spans }) => spans.map(([, begin]) => begin)) : [Infinity];
    const since = Math.min(1000 * kBatchSeconds, Math.max(...begins));
    this.since.textContent = `${shortNumber(since / 1000)} seconds ago`;
    const line = kBarHeight + kBarGap;
    this.drawing.setAttribute("viewBox", `0 0 ${kWidth} ${Math.max(1, bars.length) * line}`);
    this.drawing.style.setProperty("height", `${Math.max(1, bars.length) * line * 1.5}px`);
    const x = (before) => kWidth * (1 - Math.min(before, since) / since);
    this.drawing.replaceChildren(...bars.flatMap(({ id, spans }, i) => spans.filter(([, , end]) => end < since).map((span) => {
      const [kind, begin, end] = span;
      // The edge between chunks of a prompt stays visible.
      const width = Math.max(0.4, x(end) - x(begin) - (kind === "prefill" ? 0.3 : 0));
      return svg("rect", { class: kind, x: x(begin).toFixed(2), y: i * line, width: width.toFixed(2), height: kBarHeight },
        svg("title", {}, `Sequence ${id}: ${spanText(span)}`));
    })));
    const count = (kind) => shown.filter(({ ended, spans }) => !ended && spans.at(-1)?.[0] === kind).length;
    const states = kBatchKinds.map((kind) => `${count(kind)} ${kind}`).join(", ");
    this.drawing.setAttribute("aria-label", `Batch of ${this.model}: ${states}`);
    const hidden = shown.length - bars.length + timeline.left_out;
    this.state.textContent = shown.length === 0 ? "No sequence in this time." : states + (hidden > 0 ? `; ${hidden} more are not shown` : "");
    this.rows.replaceChildren(...bars.map((sequence) => el("tr", {}, el("th", { scope: "row" }, String(sequence.id)),
      el("td", {}, String(sequence.prompt_tokens)), el("td", {}, String(sequence.generated_tokens)),
      el("td", {}, sequence.spans.map(spanText).join("; ") + (sequence.ended ? "; ended" : "")))));
  }
}
