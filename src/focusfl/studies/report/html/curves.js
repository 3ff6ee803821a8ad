// Convergence: one panel per scenario, one line per group of runs.

const ALOFT = 1e4; // times where it began: what is above has diverged and is cut off

function newView(study) {
  return {
    x: contents.axes[0].name, y: study.metrics[0].name, logX: false, logY: true, relative: false, theory: true, bands: true,
    references: { distance: study.target }, hidden: new Set(), zoom: new Map(), all: false, height: study.heights[0].name,
  };
}

function metricOf(study, view) { return study.metrics.find((metric) => metric.name === view.y); }

// The line of a group as things are: where the best steps are shown, others have none.
function lineOf(group, view) { return view.all ? group.line : group.best_line; }

// The lines that can be seen or hidden now.
function linesOf(study, view) {
  const there = study.scenarios.flatMap((scenario) => scenario.groups.map((group) => lineOf(group, view)));
  return study.lines.map((line, number) => ({ line, number })).filter(({ number }) => there.includes(number));
}

// What a panel shows: for each group its places on the axis and its values, as asked for.
function series(study, scenario, view) {
  const base = scenario.lowest[view.y] ?? 0;
  const shown = scenario.groups.filter((group) => {
    const number = lineOf(group, view);
    return number !== null && group.curves[view.y] && !view.hidden.has(number);
  });
  const found = shown.map((group) => {
    const curve = group.curves[view.y];
    const raise = (values) => values && values.map((value) => value === null ? null : value + base);
    const number = lineOf(group, view);
    return {
      group, number, line: study.lines[number], rounds: curve.round, x: curve[view.x],
      mid: raise(curve.mid), low: raise(curve.low), high: raise(curve.high),
    };
  });
  return view.relative ? againstTheBest(found, study, scenario, view) : found;
}

function againstTheBest(found, study, scenario, view) {
  const { rising } = metricOf(study, view);
  const least = (value) => Math.max(value, contents.smallest);
  const best = (x) => {
    const there = found.map((one) => interpolate(one.x, one.mid, x));
    return rising ? Math.max(...there) : Math.min(...there);
  };
  return found.map((one) => {
    const bests = one.x.map(best);
    const change = (values) => values && values.map((value, i) => {
      if (value === null) return null;
      if (view.y === "loss") return value - scenario.lowest.loss;
      return rising ? value - bests[i] : least(value) / least(bests[i]);
    });
    return { ...one, mid: change(one.mid), low: change(one.low), high: change(one.high) };
  });
}

// The heights that all panels of a study share.
function heights(all, study, view) {
  if (!all.length) return { low: 0, high: 1, log: false };
  const { rising } = metricOf(study, view);
  const log = view.logY && !rising && all.every((one) => one.mid.every((value) => value >= 0));
  let values = all.flatMap((one) => [...one.mid, ...(view.bands && one.low ? [...one.low, ...one.high] : [])]);
  values = values.filter((value) => value !== null && (!log || value > 0));
  const reference = view.relative ? null : view.references[view.y];
  if (reference && !(log && reference < 0)) values.push(reference);
  const began = Math.max(...all.map((one) => one.mid[0]));
  const most = values.reduce((a, b) => Math.max(a, b), log ? 1e-300 : -Infinity);
  let high = rising || view.relative ? most : Math.min(most, log ? began * ALOFT : began + Math.abs(began) / 2);
  let low = values.reduce((a, b) => Math.min(a, b), high);
  if (log) return { low: Math.max(low, contents.smallest) / 2, high: high * 2, log };
  if (high === low) { high += 1; low -= 1; }
  const room = (high - low) * 0.04;
  return { low: low >= 0 && low < high / 3 ? 0 : low - room, high: high + room, log };
}

function drawPanel(drawing, study, scenario, view, range, size, colours) {
  const box = { left: 46, right: size.width - 18, top: 24, bottom: size.height - 40 };
  const found = series(study, scenario, view);
  drawing.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
  drawing.replaceChildren();
  const places = found.flatMap((one) => one.x);
  const most = places.reduce((a, b) => Math.max(a, b), 0) || 1;
  const least = view.logX ? places.reduce((a, b) => b > 0 ? Math.min(a, b) : a, most) : 0;
  const [from, to] = view.zoom.get(scenario) ?? [least, most];
  const x = scale(view.logX ? Math.max(from, least) : from, to, box.left, box.right, view.logX);
  const y = scale(range.low, range.high, box.bottom, box.top, range.log);
  const metric = metricOf(study, view);
  const names = {
    x: contents.axes.find((axis) => axis.name === view.x).label,
    y: view.relative ? metric.relative : metric.label,
  };
  axes(drawing, box, x, y, names, colours);
  const clip = `clip-${study.index}-${study.scenarios.indexOf(scenario)}-${size.name ?? "page"}`;
  add(add(add(drawing, "defs"), "clipPath", { id: clip }), "rect", {
    x: box.left - 4, y: box.top - 4, width: box.right - box.left + 8, height: box.bottom - box.top + 6,
  });
  const inside = add(drawing, "g", { "clip-path": `url(#${clip})`, fill: "none", "stroke-linejoin": "round" });
  const point = (place, value) => {
    const floor = y.log ? Math.max(value, range.low) : value;
    const across = x.log ? Math.max(place, x.low) : place;
    return `${x(across).toFixed(1)} ${y(floor).toFixed(1)}`;
  };
  const path = (xs, ys) => "M" + xs.map((place, i) => point(place, ys[i])).join("L");
  const ends = (value) => value ?? (metric.rising ? range.low : range.high); // of what has diverged
  const ordered = [...found].reverse(); // the first on top
  for (const one of view.bands ? ordered.filter((one) => one.low) : []) {
    const back = one.x.map((place, i) => point(place, ends(one.high[i]))).reverse().join("L");
    add(inside, "path", {
      class: "band", d: `${path(one.x, one.low.map(ends))}L${back}Z`, fill: ink(one.line.colour, colours),
      "fill-opacity": 0.18,
    });
  }
  const reference = view.relative ? null : view.references[view.y];
  if (reference >= range.low && reference <= range.high) {
    const at = y(reference).toFixed(1);
    add(inside, "path", { class: "reference", d: `M${box.left} ${at}H${box.right}`, stroke: colours.quiet });
    add(drawing, "text", {
      x: box.right, y: at - 4, fill: colours.quiet, "font-size": 11.5, "text-anchor": "end",
    }, powerText(reference) ?? String(reference));
  }
  if (view.theory && view.y === "distance" && !view.relative) {
    for (const one of ordered) drawTheory(inside, one, path, box, y, range, colours);
  }
  for (const one of ordered) drawLine(inside, one, { path, x, y, box, range, colours });
  return { found, x, y, box, names };
}

function drawLine(inside, one, { path, x, y, box, range, colours }) {
  const colour = ink(one.line.colour, colours), { number } = one;
  add(inside, "path", {
    class: "curve", "data-line": number, d: path(one.x, one.mid), stroke: colour, "stroke-width": one.line.width + 0.2,
    "stroke-dasharray": one.line.dash,
  });
  const mark = (i, shape, fill) => add(inside, "path", {
    class: "mark", d: shape, fill, stroke: colour, "stroke-width": 1.5, transform: `translate(${
      x(x.log ? Math.max(one.x[i], x.low) : one.x[i]).toFixed(1)} ${
      y(y.log ? Math.max(one.mid[i], range.low) : one.mid[i]).toFixed(1)})`,
  });
  const gap = (box.right - box.left) / 5;
  for (let at = box.left + gap * (0.25 + (number * 0.37) % 0.75); at < box.right; at += gap) {
    const i = rank(one.x, x.invert(at));
    if (i > 0 && i < one.x.length) mark(i, MARKS[one.line.marker], colours.paper);
  }
  const last = one.x.length - 1;
  if (one.group.diverged) mark(last, "M-4-4L4 4M-4 4L4-4", "none");
  else if (last === 0) mark(0, MARKS[one.line.marker], colours.paper);
}

// The predicted rate from where the curve begins; where it settles; its noise floor.
function drawTheory(inside, one, path, box, y, range, colours) {
  const { rate, bias, floor } = one.group.theory;
  const look = { class: "theory", stroke: ink(one.line.colour, colours), "stroke-width": 1.2 };
  if (rate > 0 && rate < 1) {
    const ys = one.rounds.map((round) => one.mid[0] * rate ** round).filter((value) => value > range.low);
    add(inside, "path", { ...look, "stroke-dasharray": "7 4", d: path(one.x.slice(0, ys.length), ys) });
  }
  for (const [value, dash] of [[bias, "2 3"], [floor, "7 3 2 3"]]) {
    if (!(value > range.low && value < range.high)) continue;
    add(inside, "path", { ...look, "stroke-dasharray": dash, d: `M${box.left} ${y(value).toFixed(1)}H${box.right}` });
  }
}

// A panel on the page: drawn to the width there is, read by pointer and keyboard.
function curvePanel(parent, study, scenario, view, redraw) {
  const figure = add(parent, "figure", { class: "panel" });
  add(figure, "figcaption", {}, scenario.name);
  const drawing = add(figure, "svg", { tabindex: 0, role: "img", "aria-label": `convergence, ${scenario.name}` });
  let shown, cursor = null, drag = null;

  function draw(range) {
    const width = Math.max(260, Math.round(figure.clientWidth));
    const size = { width, height: clamp(width * 0.62, 280, 380) };
    shown = drawPanel(drawing, study, scenario, view, range, size, palette());
    cursor = null;
  }
  function look(at, clientX, clientY) {
    drawing.querySelectorAll(".cursor").forEach((node) => node.remove());
    const { x, box, names, found } = shown;
    const place = x.invert(clamp(at, box.left, box.right));
    cursor = at;
    add(drawing, "path", { class: "cursor", d: `M${x(place)} ${box.top}V${box.bottom}`, stroke: palette().quiet });
    if (drag !== null) add(drawing, "rect", {
      class: "cursor", x: Math.min(drag, at), y: box.top, width: Math.abs(at - drag), height: box.bottom - box.top,
      fill: palette().accent, "fill-opacity": 0.15,
    });
    tip.replaceChildren();
    add(tip, "div", {}, `${names.x}: ${numberText(names.x === "seconds" ? place : Math.round(place))}`);
    const rows = add(add(tip, "table"), "tbody");
    const { rising } = metricOf(study, view);
    const values = found.map((one) => ({ one, i: Math.max(0, rank(one.x, place) - 1) }));
    values.sort((a, b) => (rising ? -1 : 1) * (a.one.mid[a.i] - b.one.mid[b.i]));
    for (const { one, i } of values.slice(0, 12)) {
      const row = add(rows, "tr"), name = add(row, "td");
      swatch(name, one.line, palette());
      name.append(view.all || !study.grid ? ` ${one.line.label}` : ` ${one.group.name}, lr ${numberText(one.group.lr)}`);
      const spread = one.low ? ` ${numberText(one.low[i])} to ${numberText(one.high[i])}` : "";
      add(add(row, "td", {}, numberText(one.mid[i])), "small", {}, spread);
    }
    showTip(clientX, clientY);
  }
  function zoom(a, b) {
    view.zoom.set(scenario, [shown.x.invert(Math.min(a, b)), shown.x.invert(Math.max(a, b))]);
    redraw();
  }
  function reset() { view.zoom.delete(scenario); redraw(); }
  const inside = (event) => {
    const frame = drawing.getBoundingClientRect();
    const at = (event.clientX - frame.left) * drawing.viewBox.baseVal.width / frame.width;
    return clamp(at, shown.box.left, shown.box.right);
  };
  drawing.addEventListener("pointermove", (event) => look(inside(event), event.clientX, event.clientY));
  drawing.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse") drag = inside(event); });
  drawing.addEventListener("pointerup", (event) => {
    const from = drag;
    drag = null;
    if (from !== null && Math.abs(inside(event) - from) > 8) zoom(from, inside(event));
  });
  drawing.addEventListener("pointerleave", () => { drag = null; rest(); });
  drawing.addEventListener("dblclick", reset);
  drawing.addEventListener("blur", rest);
  function rest() {
    hideTip();
    drawing.querySelectorAll(".cursor").forEach((node) => node.remove());
  }
  drawing.addEventListener("keydown", (event) => {
    const { box } = shown, step = (box.right - box.left) / 50, frame = drawing.getBoundingClientRect();
    const at = cursor ?? (box.left + box.right) / 2;
    const go = (to) => {
      const kept = clamp(to, box.left, box.right);
      look(kept, frame.left + kept * frame.width / drawing.viewBox.baseVal.width, frame.top + 40);
    };
    if (event.key === "ArrowLeft") go(at - step);
    else if (event.key === "ArrowRight") go(at + step);
    else if (event.key === "+") zoom(Math.max(box.left, at - 10 * step), Math.min(box.right, at + 10 * step));
    else if (event.key === "Escape" || event.key === "-") { reset(); rest(); }
    else return;
    event.preventDefault();
  });
  return draw;
}
