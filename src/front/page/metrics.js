
// The page of metrics: text in Prometheus' format, figures and quantiles.

// {name -> [{labels, value}]}. Source: Prometheus, Exposition formats.
function parseMetrics(text) {
  const families = new Map();
  for (const line of text.split("\n")) {
    const match = line.match(/^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    const value = match[3] === "+Inf" ? Infinity : Number(match[3]);
    if (!families.has(match[1])) families.set(match[1], []);
    families.get(match[1]).push({ labels, value });
  }
  return families;
}

// The metrics of one moment, of one model or of all.
class Sample {
  constructor(text, time) {
    this.families = parseMetrics(text);
    this.time = time;  // in seconds
    this.model = "";
  }
  models() {
    return [...new Set((this.families.get("nereid_tokens_total") ?? []).map(({ labels }) => labels.model))];
  }
  entries(name, wanted = {}) {
    return (this.families.get(name) ?? []).filter(({ labels }) => {
      const model = labels.model ?? labels.model_name;
      return (!this.model || model === undefined || model === this.model) &&
        Object.entries(wanted).every(([label, value]) => labels[label] === value);
    });
  }
  // The sum, or null where there is none.
  sum(name, wanted) {
    const entries = this.entries(name, wanted);
    return entries.length === 0 ? null : entries.reduce((sum, { value }) => sum + value, 0);
  }
}

// Growth of a counter in a second, between two samples; null: unknown, or the server started anew.
function rate(before, after, name, wanted) {
  const from = before?.sum(name, wanted) ?? null, to = after.sum(name, wanted);
  if (from === null || to === null || to < from || after.time <= before.time) return null;
  return (to - from) / (after.time - before.time);
}

// The quantile q of a histogram's values between two samples, interpolated within its bucket as
// Prometheus does; null: no values.
function quantile(before, after, name, q) {
  const counts = new Map();
  for (const [sample, sign] of [[after, 1], [before, -1]])
    for (const { labels, value } of sample?.entries(`${name}_bucket`) ?? []) {
      const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
      counts.set(bound, (counts.get(bound) ?? 0) + sign * value);
    }
  const buckets = [...counts].sort((a, b) => a[0] - b[0]);
  const total = buckets.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  let low = 0, below = 0;
  for (const [bound, count] of buckets) {
    if (count >= q * total) return bound === Infinity ? low : low + (bound - low) * ((q * total - below) / (count - below || 1));
    low = bound;
    below = count;
  }
  return low;
}
