
// The element of an answer, which follows it while it grows.

const kUpdateMs = 60;  // between updates of a growing answer

class AnswerView {
  // `actions`: {choose, sendResults, regenerate}; `isSeveral`: it stands beside others.
  constructor(message, answer, actions) {
    this.message = message;
    this.answer = answer;
    this.actions = actions;
    this.markdown = new MarkdownView();
    this.heat = new HeatMap();
    this.showsHeat = null;  // until somebody says: where there are tokens
    this.thought = el("div", { class: "text" });
    this.summary = el("summary", {}, "Reasoning");
    this.reasoning = el("details", { class: "reasoning", hidden: true }, this.summary, this.thought);
    this.calls = el("div", { hidden: true });
    this.shownCalls = "";
    this.error = el("p", { class: "error", role: "alert", hidden: true });
    this.stats = el("span", { class: "muted" });
    this.heatButton = el("button", { hidden: true, onclick: () => this.toggleHeat() }, "Probabilities");
    this.chooseButton = el("button", { hidden: true, onclick: () => actions.choose(message, answer) }, "Go on with this");
    this.buttons = el("div", { class: "actions" }, copyButton(() => answer.content), this.heatButton, this.chooseButton, this.stats);
    this.node = el("div", { class: "answer" }, el("h3", {}, answer.model), this.reasoning, this.markdown.node,
      this.heat.node, this.calls, this.error, this.buttons);
    this.update(false);
  }
  toggleHeat() {
    this.showsHeat = !this.heatIsShown();
    this.update(this.isBusy);
  }
  heatIsShown() {
    return this.answer.tokens.length > 0 && this.showsHeat !== false;
  }
  // Updates soon, once for many changes.
  schedule(isBusy) {
    this.isBusy = isBusy;
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.update(this.isBusy);
      this.actions.grown();
    }, kUpdateMs);
  }
  update(isBusy) {
    const { answer, message } = this, isHeat = this.heatIsShown();
    this.isBusy = isBusy;
    this.node.setAttribute("aria-busy", String(isBusy));
    this.reasoning.hidden = !answer.reasoning;
    this.thought.textContent = answer.reasoning;
    this.summary.textContent = isBusy && !answer.content ? "Reasoning …" : "Reasoning";
    this.markdown.node.hidden = isHeat;
    this.markdown.node.classList.toggle("busy", isBusy);
    this.heat.node.hidden = !isHeat;
    if (isHeat) this.heat.show(answer.tokens);
    else this.markdown.show(answer.content);
    this.heatButton.hidden = answer.tokens.length === 0;
    this.heatButton.setAttribute("aria-pressed", String(isHeat));
    this.error.hidden = !answer.error;
    this.error.textContent = answer.error;
    const isChosen = chosenAnswer(message) === answer;
    this.chooseButton.hidden = message.answers.length < 2;
    this.chooseButton.setAttribute("aria-pressed", String(isChosen));
    this.node.classList.toggle("chosen", isChosen);
    this.stats.textContent = [answer.finish && answer.finish !== "stop" ? answer.finish : "", answer.stats].filter(Boolean).join(", ");
    this.updateCalls(isBusy);
  }
  updateCalls(isBusy) {
    const { answer, message } = this, mayAnswer = !isBusy && this.actions.isLast(message);
    const state = JSON.stringify([answer.calls, mayAnswer]);
    if (state === this.shownCalls) return;
    this.shownCalls = state;
    this.calls.hidden = answer.calls.length === 0;
    const results = [];
    const shown = answer.calls.map((call) => {
      const result = el("textarea", { rows: 2, class: "mono", "aria-label": `Result of ${call.name}`, placeholder: `Result of ${call.name}` });
      results.push(result);
      return el("div", { class: "call" }, el("div", {}, "Call of ", el("strong", {}, call.name)),
        el("pre", { tabindex: "0" }, prettyJson(call.arguments)), mayAnswer ? result : null);
    });
    const send = el("button", { class: "main", onclick: () => this.actions.sendResults(message, answer, results.map((area) => area.value)) },
      "Send results");
    this.calls.replaceChildren(...shown, ...(mayAnswer && shown.length > 0 ? [send] : []));
  }
}

function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
