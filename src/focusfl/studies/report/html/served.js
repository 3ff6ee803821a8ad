// Who is served: what the last models are to each client, a strip for every group of runs.

const STRIP = 52; // pixels from one strip to the next

function stripScale(study, view, box) {
  const all = study.scenarios.flatMap((scenario) => scenario.served ? scenario.served.groups : []);
  const values = all.flatMap((group) => group.values[view.served] ?? []);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const metric = study.scenarios.find((one) => one.served).served.metrics.find((one) => one.name === view.served);
  const log = !metric.rising && low > 0 && high > 30 * low;
  const room = (high - low || Math.abs(high) || 1) * 0.04;
  const ends = log ? [low / 1.1, high * 1.1] : [low - room, high + room];
  return { metric, x: scale(...ends, box.left, box.right, log) };
}

// Where a group's worst client is among those drawn.
function worstOf(values, rising) {
  return values.reduce((worst, value, i) => (rising ? value < values[worst] : value > values[worst]) ? i : worst, 0);
}

function drawStrips(drawing, study, scenario, view, size, colours, found) {
  const box = { left: 12, right: size.width - 18, top: 4, bottom: size.height - 40 };
  const { metric, x } = stripScale(study, view, box), { served } = scenario;
  drawing.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
  drawing.replaceChildren();
  const grid = add(drawing, "g", { stroke: colours.line }), words = add(drawing, "g", { fill: colours.quiet, "font-size": 11.5 });
  for (const value of below(words, box, x)) add(grid, "path", { d: `M${x(value).toFixed(1)} ${box.top}V${box.bottom + 4}` });
  add(grid, "path", { d: `M${box.left} ${box.bottom}H${box.right}`, stroke: colours.quiet });
  add(words, "text", { class: "x-name", x: (box.left + box.right) / 2, y: box.bottom + 33, "text-anchor": "middle" }, metric.label);
  served.groups.forEach((group, row) => {
    const values = group.values[view.served];
    if (!values) return;
    const line = study.lines[group.line], colour = ink(line.colour, colours), top = box.top + row * STRIP + 20, middle = top + 10;
    const worst = worstOf(values, metric.rising), at = x(values[worst]);
    const who = `${line.label} · worst: client ${served.clients[worst]}, ${numberText(values[worst])}`;
    add(words, "text", { class: "strip-name", x: box.left, y: top - 7, fill: colours.ink }, who);
    add(drawing, "path", {
      class: "strip", d: values.map((value) => `M${x(value).toFixed(1)} ${top}v20`).join(""), stroke: colour,
      "stroke-width": 1.5, "stroke-opacity": values.length > 60 ? 0.35 : 0.7,
    });
    const mean = x(values.reduce((a, b) => a + b, 0) / values.length).toFixed(1);
    add(drawing, "path", { class: "mean", d: `M${mean} ${top - 3}v26`, stroke: colours.ink, "stroke-width": 2.5 });
    add(drawing, "path", {
      class: "worst", d: MARKS[line.marker], transform: `translate(${at.toFixed(1)} ${middle})`, fill: colours.paper,
      stroke: colour, "stroke-width": 1.5,
    });
    if (found !== null) add(drawing, "circle", {
      class: "found", cx: x(values[found]).toFixed(1), cy: middle, r: 7, fill: "none", stroke: colours.ink, "stroke-width": 2,
    });
  });
  return { box, x, metric };
}

function stripPanel(parent, study, scenario, view) {
  const { served } = scenario, figure = add(parent, "figure", { class: "panel" });
  add(figure, "figcaption", {}, scenario.name);
  const drawing = add(figure, "svg", {
    tabindex: 0, role: "img", "aria-label": `what the last model is to each client, ${scenario.name}; the table names the worst served`,
  });
  let shown, found = null;

  function draw() {
    const width = Math.max(260, Math.round(figure.clientWidth)), height = 48 + STRIP * served.groups.length;
    shown = drawStrips(drawing, study, scenario, view, { width, height }, palette(), found);
  }
  function look(client, clientX, clientY) {
    found = client;
    draw();
    tip.replaceChildren();
    add(tip, "div", {}, `client ${served.clients[client]}, ${shown.metric.label}`);
    const rows = add(add(tip, "table"), "tbody");
    for (const group of served.groups) {
      if (!group.values[view.served]) continue;
      const row = add(rows, "tr"), name = add(row, "td"), line = study.lines[group.line];
      swatch(name, line, palette());
      name.append(` ${line.label}`);
      add(row, "td", {}, numberText(group.values[view.served][client]));
    }
    showTip(clientX, clientY);
  }
  function rest() {
    hideTip();
    if (found === null) return;
    found = null;
    draw();
  }
  drawing.addEventListener("pointermove", (event) => {
    const frame = drawing.getBoundingClientRect(), ratio = drawing.viewBox.baseVal.width / frame.width;
    const [x, y] = [(event.clientX - frame.left) * ratio, (event.clientY - frame.top) * ratio];
    const row = clamp(Math.floor((y - shown.box.top) / STRIP), 0, served.groups.length - 1);
    const values = served.groups[row].values[view.served];
    if (!values) return rest();
    const far = values.map((value) => Math.abs(shown.x(value) - x)), near = far.indexOf(Math.min(...far));
    if (far[near] < 12) look(near, event.clientX, event.clientY); else rest();
  });
  drawing.addEventListener("pointerleave", rest);
  drawing.addEventListener("blur", rest);
  drawing.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], values = served.groups[0].values[view.served];
    if (!step || !values) return;
    event.preventDefault();
    const order = values.map((_, i) => i).sort((a, b) => values[a] - values[b]), last = order.length - 1;
    const place = found === null ? (step > 0 ? 0 : last) : clamp(order.indexOf(found) + step, 0, last);
    const frame = drawing.getBoundingClientRect(), ratio = frame.width / drawing.viewBox.baseVal.width;
    look(order[place], frame.left + shown.x(values[order[place]]) * ratio, frame.top + 40);
  });
  return draw;
}
