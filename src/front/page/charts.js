
// Small line charts of the last minutes, as SVG.

const kSvg = "http://www.w3.org/2000/svg";

function svg(tag, attributes, ...children) {
  const node = document.createElementNS(kSvg, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function shortNumber(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toFixed(2)} G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return size >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toPrecision(3);
}

const kUnits = {
  "": shortNumber,
  s: (value) => (value === null ? "–" : value < 1 ? `${shortNumber(1000 * value)} ms` : `${shortNumber(value)} s`),
  "%": (value) => (value === null ? "–" : `${value.toFixed(1)}%`),
  B: (value) => (value === null ? "–" : value >= 2 ** 30 ? `${(value / 2 ** 30).toFixed(2)} GiB` : `${(value / 2 ** 20).toFixed(1)} MiB`),
};

const kWidth = 320, kHeight = 90;

const hasValue = ({ points }) => points.some(([, value]) => value !== null);

class Chart {
  // `series`: [{label, of(before, now)}], at most 4. `unit`: a name in kUnits.
  constructor({ title, unit = "", series, most }) {
    this.title = title;
    this.format = kUnits[unit];
    this.most = most;
    this.series = series.map((entry) => ({ ...entry, points: [] }));
    this.top = el("div", { class: "scale" });
    this.since = el("span");
    this.paths = this.series.map((_, i) => svg("path", { class: `series${i + 1}` }));
    this.drawing = svg("svg", { viewBox: `0 -2 ${kWidth} ${kHeight + 4}`, preserveAspectRatio: "none", role: "img" },
      svg("path", { class: "axis", d: `M0 0H${kWidth}M0 ${kHeight}H${kWidth}` }), ...this.paths);
    this.values = this.series.map(() => el("span"));
    const mark = (i) => svg("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, svg("path", { class: `series${i + 1}`, d: "M0 5H26" }));
    this.rows = this.series.map(({ label }, i) => el("li", {}, mark(i), `${label} `, this.values[i]));
    this.node = el("figure", {}, el("figcaption", {}, title), this.top, this.drawing,
      el("div", { class: "scale" }, this.since, el("span", {}, "now")),
      el("ul", { class: "legend" }, ...this.rows));
  }
  add(before, now) {
    for (const entry of this.series) {
      entry.points.push([now.time, entry.of(before, now)]);
      while (entry.points[0][0] < now.time - kKeptSeconds) entry.points.shift();
    }
    this.draw(now.time);
  }
  clear() {
    for (const entry of this.series) entry.points = [];
  }
  // [label, newest value] of each series that has or had one.
  last() {
    return this.series.filter(hasValue).map(({ label, points }) => [label, this.format(points.at(-1)[1])]);
  }
  draw(now) {
    const all = this.series.flatMap(({ points }) => points.map(([, value]) => value ?? 0));
    const most = this.most ?? (Math.max(...all) || 1);
    this.top.textContent = this.format(most);
    const span = Math.min(kKeptSeconds, Math.max(60, now - this.series[0].points[0][0]));
    this.since.textContent = span <= 60 ? "a minute ago" : `${(span / 60).toFixed(1)} minutes ago`;
    this.series.forEach(({ points }, i) => this.paths[i].setAttribute("d", this.path(points, now, span, most)));
    this.series.forEach((entry, i) => {
      this.rows[i].hidden = !hasValue(entry);
      this.values[i].textContent = this.format(entry.points.at(-1)[1]);
    });
    this.node.hidden = !this.series.some(hasValue);
    this.drawing.setAttribute("aria-label", `${this.title}: ${this.last().map((pair) => pair.join(" ")).join(", ")}`);
  }
  // Values that are unknown leave a gap.
  path(points, now, span, most) {
    let out = "", isDown = false;
    for (const [time, value] of points) {
      if (value === null) {
        isDown = false;
        continue;
      }
      const x = kWidth * (1 - (now - time) / span), y = kHeight * (1 - Math.min(1, value / most));
      out += `${isDown ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}${isDown ? "" : "h0"}`;
      isDown = true;
    }
    return out;
  }
}
