
// The plan of the engine that runs, as `nereid inspect` shows it: fetched when it is opened.

class PlanView {
  constructor(model) {
    this.model = model;
    this.content = el("div", {}, "…");
    this.node = el("details", { class: "plan", ontoggle: () => this.open() }, el("summary", {}, `Plan of ${model}`), this.content);
  }
  async open() {
    if (!this.node.open || this.isThere) return;
    try {
      const plan = await (await request(`v2/models/${encodeURIComponent(this.model)}/plan`)).json();
      this.content.replaceChildren(
        el("div", { class: "wide graph", tabindex: "0", role: "region", "aria-label": "Graph" }, el("img", {
          alt: `Graph of ${this.model}: each call of the plan a box with its kernel, weights and outputs; the text below has the same`,
          src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(plan.graph)}`,
        })),
        copyButton(() => plan.text),
        el("pre", { tabindex: "0" }, plan.text));
      this.isThere = true;
    } catch (error) {
      this.content.replaceChildren(error.message);
    }
  }
}
