"use strict";
// Answers as elements. What comes from the server is only ever put in as text.

const SHOWN = 10; // classes; the others are summed up
const SVG = "http://www.w3.org/2000/svg";

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function shape(tag, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;

function short(value) {
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e7)) return value.toExponential(2);
  return String(Number(value.toPrecision(6)));
}

function bar(name, share, kind = "") {
  const fill = element("div", { class: "fill" });
  fill.style.width = `${100 * share}%`;
  return [
    element("span", {}, name),
    element("div", { class: `track ${kind}`, "aria-hidden": "true" }, fill),
    element("span", { class: "value" }, percent(share)),
  ];
}

function classes(answer) {
  const sorted = Object.entries(answer.probabilities).sort((one, other) => other[1] - one[1]);
  const bars = element("div", { class: "bars" });
  for (const [name, share] of sorted.slice(0, SHOWN)) bars.append(...bar(name, share));
  if (sorted.length > SHOWN) {
    const rest = sorted.slice(SHOWN).reduce((sum, [, share]) => sum + share, 0);
    bars.append(...bar(`${sorted.length - SHOWN} others`, Math.min(1, rest), "others"));
  }
  return [element("p", { class: "verdict" }, `${answer.class} (${percent(answer.probability)})`), bars];
}

// Each is true or not, whatever the others are.
function labels(answer) {
  const bars = element("div", { class: "bars" });
  for (const [name, share] of Object.entries(answer.probabilities)) {
    bars.append(...bar(name, share, answer.labels.includes(name) ? "" : "others"));
  }
  return [element("p", { class: "verdict" }, trueLabels(answer)), bars];
}

function trueLabels(answer) {
  const found = answer.labels.map((name) => `${name} (${percent(answer.probabilities[name])})`);
  return found.join(", ") || "none of the labels";
}

function numbers(predicted) {
  const names = Object.keys(predicted);
  if (names.length === 1) return element("p", { class: "verdict" }, `${names[0]}: ${short(predicted[names[0]])}`);
  const body = Object.entries(predicted).map(([name, value]) =>
    element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, short(value))));
  return element("table", {}, ...body);
}

function manyRows(rows) {
  const cells = (row) => {
    if ("class" in row) return [row.class, percent(row.probability)];
    return "labels" in row ? [trueLabels(row)] : Object.values(row.predicted).map(short);
  };
  const [first] = rows;
  const numbered = "labels" in first ? ["labels"] : Object.keys(first.predicted || {});
  const names = "class" in first ? ["class", "probability"] : numbered;
  const head = element("tr", {}, ...["row", ...names].map((name) => element("th", { scope: "col" }, name)));
  const lines = rows.map((row, number) =>
    element("tr", {}, ...[number + 1, ...cells(row)].map((text) => element("td", {}, String(text)))));
  return element("table", {}, head, ...lines);
}

function ticks(low, high, count = 5) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) found.push(tick);
  return found;
}

// The last rows of the past, what follows, and its interval.
function forecastPlot(name, answer) {
  // As wide as it is shown, so that its text stays readable on a telephone
  const width = Math.min(680, innerWidth - 66);
  const height = 236, left = 56, right = 10, top = 12, bottom = 42;
  const past = answer.past.values[name], future = answer.forecast[name];
  const shown = Math.min(past.length, Math.max(24, 2 * future.length));
  const before = past.slice(-shown), times = [...answer.past.times.slice(-shown), ...answer.times];
  const lower = answer.lower && answer.lower[name], upper = answer.upper && answer.upper[name];
  const all = [...before, ...future, ...(lower || []), ...(upper || [])];
  let low = Math.min(...all), high = Math.max(...all);
  if (low === high) [low, high] = [low - 1, high + 1];
  const pad = 0.05 * (high - low);
  [low, high] = [low - pad, high + pad];
  const x = (place) => left + ((width - left - right) * place) / (times.length - 1);
  const y = (value) => height - bottom - ((height - top - bottom) * (value - low)) / (high - low);
  const line = (values, start) =>
    values.map((value, place) => `${place ? "L" : "M"}${x(start + place).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const last = before[shown - 1];
  const plot = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  plot.append(shape("title", {}, `${name}: ${shown} rows of the past and ${future.length} of the forecast`));
  for (const tick of ticks(low, high)) {
    plot.append(shape("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }));
    plot.append(shape("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, short(tick)));
  }
  if (lower && upper) {
    const back = [...lower].reverse().map((value, place) =>
      `L${x(times.length - 1 - place).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    plot.append(shape("path", { class: "band", d: `${line(upper, shown)}${back}Z` }));
  }
  plot.append(shape("line", { class: "now", x1: x(shown - 1), x2: x(shown - 1), y1: top, y2: height - bottom }));
  plot.append(shape("path", { class: "past", d: line(before, 0) }));
  plot.append(shape("path", { class: "future", d: line([last, ...future], shown - 1) }));
  const labels = [[0, "start", 24], [shown - 1, "end", 8], [times.length - 1, "end", 24]];
  for (const [place, anchor, up] of labels) {
    plot.append(shape("text", { x: x(place), y: height - up, "text-anchor": anchor }, times[place]));
  }
  return element("figure", {}, element("h2", {}, name), plot);
}

function legend(hasInterval) {
  const entry = (text, drawn) => {
    const sign = shape("svg", { viewBox: "0 0 32 16", "aria-hidden": "true" });
    sign.append(drawn);
    return element("li", { class: "small" }, sign, text);
  };
  const entries = [
    entry("past", shape("path", { class: "past", d: "M0 8L32 8" })),
    entry("forecast", shape("path", { class: "future", d: "M0 8L32 8" })),
  ];
  if (hasInterval) entries.push(entry("its interval", shape("path", { class: "band", d: "M0 0L32 0L32 16L0 16Z" })));
  return element("ul", { class: "legend" }, ...entries);
}

function drawn(kind, answer) {
  if (kind === "series") {
    return [legend(answer.lower !== null), ...Object.keys(answer.forecast).map((name) => forecastPlot(name, answer))];
  }
  if (kind === "rows") return answer.rows.length > 1 ? [manyRows(answer.rows)] : one(answer.rows[0]);
  const found = one(answer);
  if (kind === "texts" && answer.tokens > answer.tokens_read) {
    const note = `The model has read the first ${answer.tokens_read} of ${answer.tokens} tokens.`;
    found.push(element("p", { class: "hint" }, note));
  }
  return found;
}

// By what was predicted; of a team's own kind as it is.
function one(answer) {
  if ("class" in answer) return classes(answer);
  if ("labels" in answer) return labels(answer);
  if ("predicted" in answer) return [numbers(answer.predicted)];
  return [element("pre", {}, JSON.stringify(answer, null, 2))];
}
