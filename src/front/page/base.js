
// Elements, storage, requests to the server.

// The address that the server's paths stand behind, with its slash; a proxy may add a prefix.
const base = location.origin + location.pathname.replace(/\/?$/, "/");

const byId = (id) => document.getElementById(id);

// An element. Attributes: `onNAME` is a listener, true stands for an empty value, false and
// undefined for none. Children are nodes or texts; texts never become markup.
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// Browser storage by names of this server; values are JSON.
class Storage {
  constructor(area) {
    this.area = area;
  }
  name(name) {
    return `nereid:${base}:${name}`;
  }
  get(name) {
    try {
      return JSON.parse(this.area().getItem(this.name(name)));
    } catch {
      return null;
    }
  }
  // False: there is no room, or the browser allows none.
  set(name, value) {
    try {
      if (value === null) this.area().removeItem(this.name(name));
      else this.area().setItem(this.name(name), JSON.stringify(value));
      return true;
    } catch {
      return false;
    }
  }
}
const kept = new Storage(() => localStorage);
const ofTab = new Storage(() => sessionStorage);

class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// The message in an error's body, of whatever API.
function errorText(body, fallback) {
  let parsed = body;
  try {
    if (typeof body === "string") parsed = JSON.parse(body);
  } catch {
    return body || fallback;
  }
  const error = parsed?.error ?? parsed?.detail ?? parsed;
  if (Array.isArray(error)) return error.map((fault) => `${fault.loc?.join(".")}: ${fault.msg}`).join("; ");
  if (typeof error === "string") return error;
  return error?.message ?? (error ? JSON.stringify(error) : fallback);
}

// fetch() of a path of the server, with the API key. ServerError: what the server says, or that it
// does not answer.
async function request(path, options = {}) {
  const headers = { ...options.headers };
  const key = ofTab.get("key");
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(base + path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "The server does not answer.");
  }
  if (response.ok) return response;
  if (response.status === 401) askForKey();
  throw new ServerError(response.status, errorText(await response.text(), `HTTP status ${response.status}`));
}

// The JSON texts of an event stream, without "[DONE]".
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const line of blocks.join("\n").split("\n")) {
      const data = line.startsWith("data:") ? line.slice(5).trim() : "";
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

function notice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
}

// Copies a text. Browsers offer the clipboard only to pages of https and of this machine.
async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const label = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = label; }, 1500);
}

function copyButton(getText, label = "Copy") {
  return el("button", { onclick: (event) => copy(getText(), event.currentTarget) }, label);
}
