
// Views of single models: batch, prefix tree, plan. The first two are asked for while the live view
// is open.

const kPolledViews = { batch: BatchView, prefix_tree: PrefixView };

const modelViews = {
  views: new Map(),  // model -> { node, polled: {route: view} }, or null: its backend has no views
  make(model) {
    const polled = Object.fromEntries(Object.entries(kPolledViews).map(([route, View]) => [route, new View(model)]));
    const node = el("div", { class: "views" }, ...Object.values(polled).map((view) => view.node), new PlanView(model).node);
    byId("views").append(node);
    return { node, polled };
  },
  async poll(models, chosen, signal) {
    for (const model of models) {
      if (this.views.get(model) === null) continue;
      for (const route of Object.keys(kPolledViews)) {
        try {
          const answer = await (await request(`v2/models/${encodeURIComponent(model)}/${route}`, { signal })).json();
          if (!this.views.has(model)) this.views.set(model, this.make(model));
          this.views.get(model).polled[route].draw(answer);
        } catch (error) {
          if (error.name === "AbortError" || error.status === 401) throw error;
          if (!this.views.has(model) && error.status > 0) this.views.set(model, null);
          break;
        }
      }
      if (this.views.get(model)) this.views.get(model).node.hidden = chosen !== "" && chosen !== model;
    }
  },
};
