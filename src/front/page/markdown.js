
// Markdown of models as elements: code, lists, quotes, tables, headings, emphasis. Whatever else
// a text has, HTML and links included, is shown as it is.

const kMaxDepth = 6;          // of lists and quotes in each other
const kMaxInlineText = 4000;  // longer paragraphs have no emphasis: its search is quadratic

const kFence = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const kItem = /^( {0,12})([-*+]|\d{1,9}[.)]) +(.*)$/;
const kHeading = /^#{1,6} +(.*)$/;
const kQuote = /^ {0,3}> ?/;

function isRule(line) {
  const marks = line.replaceAll(" ", "");
  return marks.length >= 3 && "-*_".includes(marks[0]) && marks === marks[0].repeat(marks.length);
}

// The cells of a table's row.
function cellsOf(line) {
  let text = line.trim();
  if (text.startsWith("|")) text = text.slice(1);
  if (text.endsWith("|")) text = text.slice(0, -1);
  return text.split("|").map((cell) => cell.trim());
}

function isTableStart(lines, at) {
  const next = lines[at + 1];
  return lines[at].includes("|") && next !== undefined && next.includes("-") &&
    cellsOf(next).every((cell) => /^:?-+:?$/.test(cell)) && cellsOf(next).length === cellsOf(lines[at]).length;
}

function startsBlock(lines, at) {
  const line = lines[at];
  return kFence.test(line) || kItem.test(line) || kHeading.test(line) || kQuote.test(line) || isRule(line) ||
    isTableStart(lines, at);
}

const indentOf = (line) => line.length - line.trimStart().length;

// A list from line `at` on: {items, end, ordered, first}. Items are lists of lines.
function readList(lines, at) {
  const [, , mark] = lines[at].match(kItem);
  const list = { items: [], ordered: /\d/.test(mark), first: parseInt(mark, 10) };
  let inner = 0, wasBlank = false;
  for (; at < lines.length; ++at) {
    const line = lines[at], item = line.match(kItem), isBlank = line.trim() === "";
    const isOther = item && /\d/.test(item[2]) !== list.ordered;
    const isSame = item && !isRule(line) && item[1].length < inner && !(isOther && item[1].length >= 2);
    if (list.items.length === 0 || isSame) {
      if (isOther) break;
      inner = item[1].length + item[2].length + 1;
      list.items.push([item[3]]);
    } else if (!isBlank && indentOf(line) < 2 && (wasBlank || startsBlock(lines, at))) {
      break;
    } else {
      list.items.at(-1).push(line.slice(Math.min(inner, indentOf(line))));
    }
    wasBlank = isBlank;
  }
  return { ...list, end: at };
}

function readFence(lines, at) {
  const [, fence, rest] = lines[at].match(kFence);
  const begin = ++at;
  const isEnd = (line) => line.trim().startsWith(fence) && line.trim() === fence[0].repeat(line.trim().length);
  while (at < lines.length && !isEnd(lines[at])) ++at;
  return { kind: "code", language: rest.trim().slice(0, 40), text: lines.slice(begin, at).join("\n"), end: at + 1 };
}

// The block that begins at a line that is not blank.
function readBlock(lines, at) {
  const line = lines[at];
  if (kFence.test(line)) return readFence(lines, at);
  if (isRule(line)) return { kind: "rule", end: at + 1 };
  if (kHeading.test(line)) return { kind: "heading", text: line.match(kHeading)[1], end: at + 1 };
  if (kItem.test(line)) return { kind: "list", ...readList(lines, at) };
  let end = at + 1;
  if (isTableStart(lines, at)) {
    while (end < lines.length && lines[end].includes("|")) ++end;
    return { kind: "table", rows: [line, ...lines.slice(at + 2, end)].map(cellsOf), end };
  }
  if (kQuote.test(line)) {
    while (end < lines.length && kQuote.test(lines[end])) ++end;
    return { kind: "quote", lines: lines.slice(at, end).map((quoted) => quoted.replace(kQuote, "")), end };
  }
  while (end < lines.length && lines[end].trim() !== "" && !startsBlock(lines, end)) ++end;
  return { kind: "paragraph", text: lines.slice(at, end).join("\n"), end };
}

// Blocks with `source`, the text that each was made of.
function blocksOf(lines) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (lines[at].trim() === "") {
      ++at;
      continue;
    }
    const block = readBlock(lines, at);
    block.source = lines.slice(at, block.end).join("\n");
    at = block.end;
    blocks.push(block);
  }
  return blocks;
}

const kEmphasis = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

// The end of an emphasis that begins at `at` with `mark`, or -1.
function emphasisEnd(text, at, mark) {
  const isWord = (c) => c !== undefined && /[\p{L}\p{N}]/u.test(c);
  const isSpace = (c) => c === undefined || /\s/.test(c);
  const begin = at + mark.length;
  if (isSpace(text[begin]) || (mark[0] === "_" && isWord(text[at - 1]))) return -1;
  for (let end = text.indexOf(mark, begin + 1); end >= 0; end = text.indexOf(mark, end + 1)) {
    const after = text[end + mark.length];
    if (mark.length === 1 && (after === mark || text[end - 1] === mark)) continue;
    if (!isSpace(text[end - 1]) && !(mark[0] === "_" && isWord(after))) return end;
  }
  return -1;
}

// Texts and elements of a line or paragraph.
function inlineOf(text, depth = 0) {
  if (text.length > kMaxInlineText || depth > kMaxDepth) return [text];
  const out = [], unclosed = new Set();
  let plain = "";
  const add = (node) => {
    if (plain) out.push(plain);
    plain = "";
    out.push(node);
  };
  for (let at = 0; at < text.length;) {
    const rest = text[at];
    if (rest === "\\" && /[\\`*_~|#>[\]()-]/.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
      continue;
    }
    if (rest === "`") {
      const run = text.slice(at).match(/^`+/)[0];
      const end = unclosed.has(run) ? -1 : text.indexOf(run, at + run.length);
      if (end >= 0) {
        add(el("code", {}, text.slice(at + run.length, end).replace(/^ (.*[^ ].*) $/s, "$1")));
        at = end + run.length;
      } else {
        unclosed.add(run);
        plain += run;
        at += run.length;
      }
      continue;
    }
    const found = kEmphasis.find(([mark]) => text.startsWith(mark, at));
    const end = found && !unclosed.has(found[0]) ? emphasisEnd(text, at, found[0]) : -1;
    if (end >= 0) {
      add(el(found[1], {}, ...inlineOf(text.slice(at + found[0].length, end), depth + 1)));
      at = end + found[0].length;
      continue;
    }
    // Where none closes from here on, none closes later ones.
    if (found && text.indexOf(found[0], at + found[0].length) < 0) unclosed.add(found[0]);
    plain += found ? found[0] : rest;
    at += found ? found[0].length : 1;
  }
  if (plain) out.push(plain);
  return out;
}

function codeElement(block) {
  return el("div", { class: "code" },
    el("div", { class: "head" }, el("span", { class: "muted" }, block.language || "text"),
      copyButton(() => block.text, "Copy code")),
    el("pre", { tabindex: "0" }, el("code", {}, block.text)));
}

function tableElement(block) {
  const [head, ...rows] = block.rows;
  const cells = (row, tag) => el("tr", {}, ...row.map((cell) => el(tag, {}, ...inlineOf(cell))));
  return el("div", { class: "wide" },
    el("table", {}, el("thead", {}, cells(head, "th")), el("tbody", {}, ...rows.map((row) => cells(row, "td")))));
}

function itemElement(lines, depth) {
  const blocks = blocksOf(lines);
  return el("li", {}, ...blocks.flatMap((block, i) =>
    i === 0 && block.kind === "paragraph" ? inlineOf(block.text) : [blockElement(block, depth)]));
}

function blockElement(block, depth = 0) {
  if (depth > kMaxDepth) return el("p", {}, block.source);
  switch (block.kind) {
    case "code": return codeElement(block);
    case "rule": return el("hr");
    case "heading": return el("p", { class: "heading" }, ...inlineOf(block.text));
    case "table": return tableElement(block);
    case "quote":
      return el("blockquote", {}, ...blocksOf(block.lines).map((inner) => blockElement(inner, depth + 1)));
    case "list":
      return el(block.ordered ? "ol" : "ul", block.ordered ? { start: block.first } : {},
        ...block.items.map((lines) => itemElement(lines, depth + 1)));
    default: return el("p", {}, ...inlineOf(block.text));
  }
}

// An element that shows a text that grows; blocks that stay the same keep their elements.
class MarkdownView {
  constructor() {
    this.node = el("div", { class: "markdown" });
    this.sources = [];
  }
  show(text) {
    const blocks = blocksOf(text.split("\n"));
    let same = 0;
    while (same < blocks.length && blocks[same].source === this.sources[same]) ++same;
    while (this.node.childNodes.length > same) this.node.lastChild.remove();
    this.node.append(...blocks.slice(same).map((block) => blockElement(block)));
    this.sources = blocks.map((block) => block.source);
  }
}
