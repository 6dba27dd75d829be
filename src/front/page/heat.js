
// Tokens of an answer, colored by probability, with the alternatives of the one that is pointed at
// or has the focus. Arrow keys go from token to token.

function heatClass(logprob) {
  const p = Math.exp(logprob);
  return p >= 0.9 ? "p0" : p >= 0.5 ? "p1" : p >= 0.1 ? "p2" : p >= 0.01 ? "p3" : "p4";
}

// Spaces and line ends as marks.
const shownToken = (text) => text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replace(/^ | $/g, "␣") || "(empty)";

function percent(logprob) {
  const p = 100 * Math.exp(logprob);
  return p >= 99.95 ? "100%" : p >= 0.1 ? `${p.toFixed(1)}%` : `${p.toPrecision(1)}%`;
}

class HeatMap {
  constructor() {
    this.list = el("div", { class: "tokens", role: "group", "aria-label": "Tokens; arrow keys go through them" });
    this.panel = el("div", { class: "alternatives", role: "status", hidden: true });
    this.node = el("div", {}, this.list, this.panel);
    this.tokens = [];
    this.list.addEventListener("mouseover", (event) => this.point(event.target));
    this.list.addEventListener("focusin", (event) => this.point(event.target));
    this.list.addEventListener("mouseleave", () => this.point(this.list.contains(document.activeElement) ? document.activeElement : null));
    this.list.addEventListener("focusout", () => this.point(null));
    this.list.addEventListener("keydown", (event) => this.key(event));
  }
  // Adds what `tokens` have more than at the last call.
  show(tokens) {
    for (let i = this.tokens.length; i < tokens.length; ++i)
      this.list.append(el("span", { class: heatClass(tokens[i].logprob), tabindex: i === 0 ? "0" : "-1", "data-index": i }, tokens[i].text));
    this.tokens = tokens.slice();
  }
  point(target) {
    const token = target && this.tokens[target.dataset?.index];
    this.panel.hidden = !token;
    if (!token) return;
    const others = token.top.filter(([text]) => text !== token.text);
    const row = ([text, logprob], isDrawn) => el("tr", {}, el("td", { class: "mono" }, isDrawn ? el("strong", {}, shownToken(text)) : shownToken(text)),
      el("td", {}, percent(logprob)));
    const rows = [[token.text, token.logprob], ...others].sort((a, b) => b[1] - a[1]);
    this.panel.replaceChildren(el("table", {}, el("tbody", {}, ...rows.map((entry) => row(entry, entry[0] === token.text)))));
    const room = this.panel.offsetParent?.clientWidth ?? 0;
    this.panel.style.top = `${target.offsetTop + target.offsetHeight + 4}px`;
    this.panel.style.left = `${Math.max(0, Math.min(target.offsetLeft, room - this.panel.offsetWidth))}px`;
  }
  key(event) {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key === "Escape") this.panel.hidden = true;
    const next = this.list.children[Number(event.target.dataset.index) + steps[event.key]];
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}
