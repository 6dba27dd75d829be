
// The plan of a model: what it computes in a step, as `nereid inspect --graph` draws it; fetched when it is opened.

function planDetails(model) {
  const place = el("div", { class: "plan" });
  const details = el("details", { ontoggle: () => details.open && place.childNodes.length === 0 && show() }, el("summary", {}, `Plan of ${model}`), place);
  async function show() {
    place.replaceChildren("Loading");
    try {
      const { drawings } = await (await request(`v2/models/${encodeURIComponent(model)}/plan`)).json();
      // As pictures: what they contain runs no script and has no style of the page.
      place.replaceChildren(...drawings.map(({ name, svg: text }) =>
        el("img", { alt: `Plan of ${model}, ${name}`, src: `data:image/svg+xml,${encodeURIComponent(text)}` })));
    } catch (error) {
      place.replaceChildren(el("span", { class: "error" }, error.message));
    }
  }
  return details;
}
