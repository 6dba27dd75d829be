
// Conversations, kept in localStorage. A conversation has settings and messages: of the user
// (content, pictures as data URLs), of the model (answers, and the number of the chosen one), of tools (id, name, content).

// Without tokens and their probabilities, which would fill the storage.
const keptText = (chats) => JSON.stringify(chats, (key, value) => (key === "tokens" ? [] : value));
// Without pictures too; their number stays.
const keptWords = (chats) => JSON.stringify(chats, (key, value) =>
  (key === "tokens" ? [] : key === "pictures" ? value.map(() => null) : value));

// Whether a stored value is a conversation.
const isChat = (chat) => chat?.settings && Array.isArray(chat.messages) && chat.messages.every((message) => message?.role);

class Conversations {
  constructor() {
    const stored = kept.get("chats");
    this.all = (Array.isArray(stored) ? stored : []).filter(isChat);
    if (this.all.length === 0) this.all = [this.make({})];
    this.current = this.all[0];
  }
  make(settings) {
    return { id: crypto.getRandomValues(new Uint32Array(2)).join("-"), settings: { ...settings }, messages: [] };
  }
  add() {
    if (this.current.messages.length === 0) return;
    this.current = this.make(this.current.settings);
    this.all.unshift(this.current);
    this.save();
  }
  remove(chat) {
    this.all = this.all.filter((other) => other !== chat);
    if (this.all.length === 0) this.all = [this.make(chat.settings)];
    if (this.current === chat) this.current = this.all[0];
    this.save();
  }
  // Takes what another tab has stored, but for conversations that are the same or answered here.
  // True: the current one is another.
  take(stored) {
    if (!Array.isArray(stored)) return false;
    stored = stored.filter(isChat);
    const before = this.current, own = new Map(this.all.map((chat) => [chat.id, chat]));
    const stays = (chat) => running.has(chat) || (chat === before && chat.messages.length === 0);
    const keeps = (chat, other) => chat && (stays(chat) || keptText(chat) === keptText(other));
    const known = new Set(stored.map((chat) => chat.id));
    this.all = [...this.all.filter((chat) => stays(chat) && !known.has(chat.id)),
      ...stored.map((chat) => (keeps(own.get(chat.id), chat) ? own.get(chat.id) : chat))];
    if (this.all.length === 0) this.all = [this.make(before.settings)];
    this.current = this.all.find((chat) => chat.id === before.id) ?? this.all[0];
    return this.current !== before;
  }
  save() {
    if (kept.set("chats", JSON.parse(keptText(this.all)))) return;
    notice(kept.set("chats", JSON.parse(keptWords(this.all)))
      ? "The browser has no room for the pictures of the conversations: they are lost when the page is closed."
      : "The browser has no room for more conversations: delete some.");
  }
}
const chats = new Conversations();

function titleOf(chat) {
  const first = chat.messages.find((message) => message.role === "user");
  return first ? first.content.trim().replace(/\s+/g, " ").slice(0, 60) : "New chat";
}

const chosenAnswer = (message) => message.answers[message.chosen] ?? message.answers[0];

// A user's text, behind its pictures if there are any.
function userContent({ content, pictures }) {
  const shown = (pictures ?? []).filter(Boolean);
  if (shown.length === 0) return content;
  return [...shown.map((url) => ({ type: "image_url", image_url: { url } })), { type: "text", text: content }];
}

// The messages as the API takes them. Answers without text and calls are left out.
function apiMessages(chat) {
  const out = chat.settings.system ? [{ role: "system", content: chat.settings.system }] : [];
  for (const message of chat.messages) {
    if (message.role === "user") out.push({ role: "user", content: userContent(message) });
    if (message.role === "tool") out.push({ role: "tool", tool_call_id: message.id, content: message.content });
    if (message.role !== "assistant") continue;
    const { content, calls } = chosenAnswer(message);
    if (!content && calls.length === 0) continue;
    const entry = { role: "assistant", content };
    if (calls.length > 0)
      entry.tool_calls = calls.map((call) =>
        ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }));
    out.push(entry);
  }
  return out;
}
