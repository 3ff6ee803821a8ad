"use strict";
// Elements, scales, numbers as text: what every figure is made of.

const LIGHT = { paper: "#ffffff", line: "#dfe3e8", quiet: "#56606b", ink: "#1b1f24", accent: "#0072b2" };

function add(parent, name, attributes = {}, text) {
  const isSvg = name === "svg" || parent instanceof SVGElement;
  const node = isSvg ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
  }
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

// The colours of the page as they are now: an SVG must stand on its own when saved.
function palette() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(Object.keys(LIGHT).map(
    (name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

function channels(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

function mix(from, to, share) {
  const [a, b] = [channels(from), channels(to)];
  return `#${a.map((value, i) => Math.round(value + share * (b[i] - value)).toString(16).padStart(2, "0")).join("")}`;
}

// The colour of a line: lighter on dark paper, and black turned white.
function ink(colour, colours) {
  if (colours.paper === "#ffffff") return colour;
  return mix(colour, colours.ink, colour === "#000000" ? 1 : 0.25);
}

function clamp(value, low, high) { return Math.max(low, Math.min(high, value)); }

function scale(low, high, from, to, log) {
  const forth = log ? Math.log10 : (value) => value;
  const back = log ? (value) => 10 ** value : (value) => value;
  const a = forth(low), b = forth(high) === a ? a + 1 : forth(high);
  const place = (value) => from + (forth(value) - a) / (b - a) * (to - from);
  return Object.assign(place, {
    low, high, log, invert: (at) => back(a + (at - from) / (to - from) * (b - a)),
  });
}

function ticks(axis, wanted) {
  if (!axis.log) return evenTicks(axis.low, axis.high, wanted);
  const from = Math.ceil(Math.log10(axis.low) - 1e-9), to = Math.floor(Math.log10(axis.high) + 1e-9);
  if (to - from < 1) return evenTicks(axis.low, axis.high, wanted).filter((value) => value > 0);
  const stride = Math.ceil((to - from + 1) / wanted);
  const found = [];
  for (let power = Math.ceil(from / stride) * stride; power <= to; power += stride) found.push(10 ** power);
  return found;
}

function evenTicks(low, high, wanted) {
  const rough = (high - low) / wanted, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * size >= rough) * size;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(k * step);
  return found;
}

const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

// A power of ten as one, or nothing if it is none.
function powerText(value) {
  const power = Math.round(Math.log10(value));
  if (!(value > 0) || Math.abs(value / 10 ** power - 1) > 1e-6) return null;
  return "10" + String(power).replace(/./g, (digit) => RAISED[digit]);
}

// The numbers of one axis, all in the same notation.
function tickTexts(values, log) {
  if (log && values.every(powerText)) return values.map(powerText);
  const sizes = values.map(Math.abs).filter((size) => size > 0);
  const most = Math.max(...sizes), tiny = Math.min(...sizes) < 1e-3;
  const [unit, letter] = most >= 1e6 ? [1e6, "M"] : most >= 1e4 ? [1e3, "k"] : [1, ""];
  return values.map((value) => {
    if (value === 0) return "0";
    if (tiny) return (+value.toPrecision(3)).toExponential().replace("+", "");
    return `${+(value / unit).toPrecision(6)}${letter}`;
  });
}

function numberText(value) {
  if (value === null || !Number.isFinite(value)) return "∞";
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-2 || size >= 1e7)) return value.toExponential(1).replace("+", "");
  return Number.isInteger(value) ? value.toLocaleString("en") : String(+value.toPrecision(4));
}

// Where in a rising list a value would stand last.
function rank(list, value) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] <= value) low = middle + 1; else high = middle;
  }
  return low;
}

function interpolate(xs, ys, x) {
  const after = rank(xs, x);
  if (after === 0) return ys[0];
  if (after === xs.length) return ys[xs.length - 1];
  const share = (x - xs[after - 1]) / (xs[after] - xs[after - 1]);
  return ys[after - 1] + share * (ys[after] - ys[after - 1]);
}

const MARKS = {
  o: "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0Z", s: "M-2.7-2.7H2.7V2.7H-2.7Z", "^": "M0-3.6L3.4 2.6H-3.4Z",
  D: "M0-3.7L3.7 0L0 3.7L-3.7 0Z", v: "M0 3.6L3.4-2.6H-3.4Z",
  P: "M-1.2-3.6H1.2V-1.2H3.6V1.2H1.2V3.6H-1.2V1.2H-3.6V-1.2H-1.2Z",
  X: "M-3.4-2L-2-3.4L0-1.4L2-3.4L3.4-2L1.4 0L3.4 2L2 3.4L0 1.4L-2 3.4L-3.4 2L-1.4 0Z",
};

function swatch(parent, line, colours, at = {}) {
  const drawing = add(parent, "svg", { width: 30, height: 12, viewBox: "0 0 30 12", "aria-hidden": "true", ...at });
  const colour = ink(line.colour, colours);
  add(drawing, "path", { d: "M1 6H29", stroke: colour, "stroke-width": 2, "stroke-dasharray": line.dash });
  add(drawing, "path", {
    d: MARKS[line.marker], transform: "translate(15 6)", fill: colours.paper, stroke: colour, "stroke-width": 1.5,
  });
  return drawing;
}

// Write the numbers below a figure; give them back.
function below(words, box, x) {
  const values = ticks(x, Math.max(2, (box.right - box.left) / 80)), texts = tickTexts(values, x.log);
  values.forEach((value, i) => add(words, "text", {
    class: "x-tick", x: x(value), y: box.bottom + 16, "text-anchor": "middle",
  }, texts[i]));
  return values;
}

// The axes of a figure: a frame to draw in, lines of the grid, numbers and names.
function axes(drawing, box, x, y, names, colours) {
  const grid = add(drawing, "g", { stroke: colours.line, "stroke-width": 1 });
  const words = add(drawing, "g", { fill: colours.quiet, "font-size": 11.5 });
  const up = ticks(y, Math.max(3, (box.bottom - box.top) / 42)), texts = tickTexts(up, y.log);
  up.forEach((value, i) => {
    const at = Math.round(y(value)) + 0.5;
    add(grid, "path", { d: `M${box.left} ${at}H${box.right}` });
    add(words, "text", { class: "y-tick", x: box.left - 6, y: at + 4, "text-anchor": "end" }, texts[i]);
  });
  for (const value of below(words, box, x)) add(grid, "path", { d: `M${x(value).toFixed(1)} ${box.bottom}v4` });
  add(grid, "path", { d: `M${box.left} ${box.bottom}H${box.right}`, stroke: colours.quiet });
  add(words, "text", {
    class: "x-name", x: (box.left + box.right) / 2, y: box.bottom + 33, "text-anchor": "middle",
  }, names.x);
  add(words, "text", { class: "y-name", x: 2, y: 11 }, names.y);
}

// One small window for all figures, beside the pointer but inside the page.
const tip = document.getElementById("tip");

function showTip(x, y) {
  tip.hidden = false;
  const width = document.documentElement.clientWidth;
  const left = x + 16 + tip.offsetWidth > width ? x - 16 - tip.offsetWidth : x + 16;
  tip.style.left = `${clamp(left, 4, width - tip.offsetWidth - 4) + scrollX}px`;
  tip.style.top = `${clamp(y + 16, 4, innerHeight - tip.offsetHeight - 4) + scrollY}px`;
}

function hideTip() { tip.hidden = true; }
