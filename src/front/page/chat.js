
// The chat view: conversations, messages, and what one can do with them.

let models = [];             // of /v1/models
const running = new Map();   // conversation -> AbortController of its answer
let views = new Map();       // answer -> its AnswerView, of the current conversation
let settingsPanel;

const isRunning = () => running.has(chats.current);

async function loadModels() {
  try {
    models = (await (await request("v1/models")).json()).data;
  } catch (error) {
    notice(error.message);
    return false;
  }
  notice(models.length === 0 ? "The server has no model for chats." : "");
  const label = (model) => (model.parent ? `${model.id} (adapter of ${model.parent})` : model.id);
  const options = () => models.map((model) => el("option", { value: model.id }, label(model)));
  byId("model").replaceChildren(...options());
  byId("other-model").replaceChildren(el("option", { value: "" }, "nothing"), ...options());
  showModels();
  return true;
}

function showModels() {
  const { model, other } = chats.current.settings;
  const has = (id) => models.some((entry) => entry.id === id);
  byId("model").value = has(model) ? model : models[0]?.id ?? "";
  byId("other-model").value = has(other) ? other : "";
  showAttach();
}

function showChats() {
  byId("chat-list").replaceChildren(...chats.all.map((chat) => el("li", {},
    el("button", { class: "open", "aria-current": chat === chats.current ? "true" : undefined, title: titleOf(chat), onclick: () => openChat(chat) }, titleOf(chat)),
    el("button", { "aria-label": `Delete ${titleOf(chat)}`, onclick: () => deleteChat(chat) }, "✕"))));
}

function openChat(chat) {
  chats.current = chat;
  showPanel("chats", false);
  showAll();
}

function deleteChat(chat) {
  if (chat.messages.length > 0 && !confirm(`Delete "${titleOf(chat)}"?`)) return;
  running.get(chat)?.abort();
  chats.remove(chat);
  showAll();
}

function showAll() {
  showChats();
  showModels();
  settingsPanel.show();
  showMessages();
  byId("messages").scrollTop = byId("messages").scrollHeight;
}

function showState() {
  byId("send").hidden = isRunning();
  byId("stop").hidden = !isRunning();
  for (const button of document.querySelectorAll("[data-idle]")) button.disabled = isRunning();
}

const viewActions = {
  isLast: (message) => chats.current.messages.at(-1) === message,
  choose(message, answer) {
    message.chosen = message.answers.indexOf(answer);
    message.answers.forEach((other) => views.get(other)?.update(isRunning() && viewActions.isLast(message)));
    chats.save();
  },
  sendResults(message, answer, results) {
    if (isRunning()) return;
    message.chosen = message.answers.indexOf(answer);
    answer.calls.forEach((call, i) => chats.current.messages.push({ role: "tool", id: call.id, name: call.name, content: results[i] }));
    ask();
  },
  // Follows the end of a growing answer unless the reader has scrolled away from it.
  grown() {
    const list = byId("messages");
    if (list.scrollHeight - list.scrollTop - list.clientHeight < 160) list.scrollTop = list.scrollHeight;
  },
};

// A button that has no effect while an answer runs.
const idleButton = (label, action) => el("button", { "data-idle": true, onclick: () => isRunning() || action() }, label);

function userElement(message, index) {
  const text = el("div", { class: "text" }, message.content);
  const box = el("div", { class: "message user" }, el("h2", {}, "You"), pictureRow(message.pictures), text,
    el("div", { class: "actions" }, copyButton(() => message.content), idleButton("Edit", () => editMessage(box, message, index))));
  return box;
}

function editMessage(box, message, index) {
  const area = el("textarea", { rows: Math.min(12, message.content.split("\n").length + 1), "aria-label": "Message, edited" });
  area.value = message.content;
  const send = () => {
    if (isRunning() || !area.value.trim()) return;
    chats.current.messages.length = index;
    chats.current.messages.push({ ...message, content: area.value });
    ask();
  };
  box.replaceChildren(el("h2", {}, "You"), pictureRow(message.pictures), area, el("div", { class: "actions" },
    el("button", { class: "main", onclick: send }, "Send again"), el("button", { onclick: showMessages }, "Cancel")));
  area.focus();
}

function toolElement(message) {
  return el("div", { class: "message tool" }, el("h2", {}, `Result of ${message.name}`), el("div", { class: "text mono" }, message.content));
}

function assistantElement(message, index) {
  const isSeveral = message.answers.length > 1;
  const answers = message.answers.map((answer) => {
    const view = new AnswerView(message, answer, viewActions);
    views.set(answer, view);
    return view.node;
  });
  const regenerate = () => {
    chats.current.messages.length = index;
    ask();
  };
  return el("div", { class: "message assistant" }, el("h2", { class: "unseen" }, "Answer"),
    el("div", { class: isSeveral ? "answers several" : "answers" }, ...answers),
    el("div", { class: "actions" }, idleButton("Regenerate", regenerate)));
}

function showMessages() {
  views = new Map();
  byId("messages").replaceChildren(...chats.current.messages.map((message, i) =>
    message.role === "user" ? userElement(message, i) : message.role === "tool" ? toolElement(message) : assistantElement(message, i)));
  if (isRunning()) for (const answer of chats.current.messages.at(-1).answers) views.get(answer).update(true);
  showState();
}

// The models that answer.
function askedModels() {
  const ids = [byId("model").value];
  const other = byId("other-model").value;
  return other ? [...ids, other] : ids;
}

// Answers the current conversation.
async function ask() {
  const chat = chats.current, { settings } = chat;
  let bodies;
  try {
    bodies = askedModels().map((model) => requestBody(settings, model, apiMessages(chat)));
  } catch (error) {
    showPanel("settings", true);
    settingsPanel.fault(error);
    return;
  }
  const controller = new AbortController();
  const parts = bodies.map((body) => ({ body, answers: Array.from({ length: numAnswers(settings) }, () => newAnswer(body.model)) }));
  const message = { role: "assistant", chosen: 0, answers: parts.flatMap((part) => part.answers) };
  chat.messages.push(message);
  running.set(chat, controller);
  byId("said").textContent = "The model answers.";
  chats.save();
  showChats();
  showMessages();
  byId("messages").scrollTop = byId("messages").scrollHeight;
  const changed = (answer) => views.get(answer)?.schedule(true);
  await Promise.all(parts.map(({ body, answers }) => complete(body, answers, controller.signal, changed)));
  running.delete(chat);
  chats.save();
  for (const answer of message.answers) {
    const view = views.get(answer);
    clearTimeout(view?.timer);
    if (view) view.timer = null;
    view?.update(false);
  }
  showState();
  viewActions.grown();
  byId("said").textContent = message.answers.some((answer) => answer.error) ? "" : "The answer is complete.";
}

function send() {
  const area = byId("prompt"), text = area.value;
  if (!text.trim() || isRunning()) return;
  const before = chats.current.messages.length, pictures = attached.pictures;
  chats.current.messages.push({ role: "user", content: text, ...(pictures.length > 0 && { pictures }) });
  ask();
  // A setting that is wrong leaves the text and the pictures where they are.
  if (!isRunning()) {
    chats.current.messages.length = before;
    return;
  }
  area.value = "";
  attached.take();
}

function startChat() {
  let timer;
  settingsPanel = new SettingsPanel(byId("settings"), () => {
    clearTimeout(timer);
    timer = setTimeout(() => chats.save(), 300);
  });
  byId("send").addEventListener("click", send);
  byId("stop").addEventListener("click", () => running.get(chats.current)?.abort());
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  startAttach();
  byId("new-chat").addEventListener("click", () => {
    chats.add();
    showPanel("chats", false);
    showAll();
    byId("prompt").focus();
  });
  for (const [id, name] of [["model", "model"], ["other-model", "other"]])
    byId(id).addEventListener("change", () => {
      chats.current.settings[name] = byId(id).value;
      chats.save();
      showAttach();
    });
  window.addEventListener("storage", (event) => {
    if (event.key !== kept.name("chats")) return;
    if (chats.take(kept.get("chats"))) showAll();
    else showChats();
  });
  showAll();
  loadModels();
}
