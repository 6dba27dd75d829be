
// Views, panels, the API key.

// Shows or hides a panel that has a button.
function showPanel(id, isShown) {
  byId(`toggle-${id}`).setAttribute("aria-expanded", String(isShown));
  if (id === "key") byId("key").hidden = !isShown;
  else byId("view-chat").classList.toggle(`with-${id}`, isShown);
}

function askForKey() {
  if (!byId("key").hidden) return;
  showPanel("key", true);
  byId("key-field").focus();
}

async function useKey(key) {
  ofTab.set("key", key || null);
  byId("key-field").value = "";
  if (await loadModels()) showPanel("key", false);
  showView(shownView());
}

function showView(name) {
  for (const view of ["chat", "live"]) {
    byId(`tab-${view}`).setAttribute("aria-selected", String(view === name));
    byId(`tab-${view}`).tabIndex = view === name ? 0 : -1;
    byId(`view-${view}`).hidden = view !== name;
  }
  if (name === "live" && !document.hidden) liveView.start();
  else liveView.stop();
}

const shownView = () => (byId("view-live").hidden ? "chat" : "live");

for (const view of ["chat", "live"]) {
  byId(`tab-${view}`).addEventListener("click", () => showView(view));
  byId(`tab-${view}`).addEventListener("keydown", (event) => {
    if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
    const other = view === "chat" ? "live" : "chat";
    showView(other);
    byId(`tab-${other}`).focus();
  });
}
for (const id of ["chats", "settings", "key"])
  byId(`toggle-${id}`).addEventListener("click", (event) => {
    const isShown = event.currentTarget.getAttribute("aria-expanded") !== "true";
    if (isShown && id !== "key") showPanel(id === "chats" ? "settings" : "chats", false);
    showPanel(id, isShown);
    if (isShown && id !== "key") showView("chat");
    if (isShown && id === "key") byId("key-field").focus();
  });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") for (const id of ["chats", "settings"]) showPanel(id, false);
});
byId("key-use").addEventListener("click", () => useKey(byId("key-field").value.trim()));
byId("key-field").addEventListener("keydown", (event) => {
  if (event.key === "Enter") useKey(byId("key-field").value.trim());
});
byId("key-forget").addEventListener("click", () => useKey(""));
byId("live-model").addEventListener("change", () => liveView.replay());
document.addEventListener("visibilitychange", () => showView(shownView()));
startChat();
