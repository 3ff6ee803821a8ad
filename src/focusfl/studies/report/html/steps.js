// What the runs of a grid end with, by their step size.

const NEVER = 1.6; // times the largest value: where what was never reached is marked

function stepRange(study, view) {
  const { rising } = study.heights.find((height) => height.name === view.height);
  const ends = study.scenarios.flatMap((scenario) => scenario.grids.flatMap((grid) => grid.steps.map((step) => step[view.height] ?? [])));
  const values = ends.flat().filter((value) => value !== null && (rising || value > 0));
  const most = values.reduce((a, b) => Math.max(a, b), 0) || 1, least = values.reduce((a, b) => Math.min(a, b), most);
  if (rising) return { low: least - (most - least || 1) / 20, high: most + (most - least || 1) / 20, log: false };
  const never = ends.some((end) => end[1] === null) ? most * NEVER : most;
  return { low: least / 1.5, high: never * 1.5, log: true, never };
}

function drawSteps(drawing, study, scenario, view, size, colours) {
  const box = { left: 46, right: size.width - 18, top: 24, bottom: size.height - 40 };
  const height = study.heights.find((one) => one.name === view.height), range = stepRange(study, view);
  drawing.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
  drawing.replaceChildren();
  const lrs = study.scenarios.flatMap((one) => one.grids.flatMap((grid) => grid.steps.map((step) => step.lr)));
  const x = scale(Math.min(...lrs) / 1.15, Math.max(...lrs) * 1.15, box.left, box.right, true);
  const y = scale(range.low, range.high, box.bottom, box.top, range.log);
  axes(drawing, box, x, y, { x: "step size lr", y: height.label }, colours);
  const inside = add(drawing, "g", { fill: "none", "stroke-linejoin": "round" });
  for (const grid of [...scenario.grids].reverse()) { // the first on top
    const line = study.lines[grid.line], colour = ink(line.colour, colours);
    const place = (step, which) => {
      const value = clamp(step[view.height][which] ?? range.never, range.low, range.high);
      return `${x(step.lr).toFixed(1)} ${y(value).toFixed(1)}`;
    };
    const there = grid.steps.filter((step) => step[view.height]);
    const reached = there.filter((step) => step[view.height][1] !== null);
    const path = (steps, which) => steps.map((step) => place(step, which)).join("L");
    if (view.bands && reached.length) add(inside, "path", {
      class: "band", fill: colour, "fill-opacity": 0.18, d: `M${path(reached, 0)}L${path([...reached].reverse(), 2)}Z`,
    });
    add(inside, "path", {
      class: "step-curve", stroke: colour, "stroke-width": line.width + 0.2, "stroke-dasharray": line.dash,
      d: reached.length ? `M${path(reached, 1)}` : "",
    });
    for (const step of there) {
      const never = step[view.height][1] === null;
      add(inside, "path", {
        class: "mark", transform: `translate(${place(step, 1)})`, stroke: colour, "stroke-width": 1.5,
        d: never ? "M-4-4L4 4M-4 4L4-4" : MARKS[line.marker], fill: step.best && !never ? colour : colours.paper,
      });
    }
  }
  return { box, x };
}

function stepPanel(parent, study, scenario, view) {
  const figure = add(parent, "figure", { class: "panel" });
  add(figure, "figcaption", {}, scenario.name);
  const drawing = add(figure, "svg", { tabindex: 0, role: "img", "aria-label": `by step size, ${scenario.name}` });
  const lrs = [...new Set(scenario.grids.flatMap((grid) => grid.steps.map((step) => step.lr)))].sort((a, b) => a - b);
  let shown, cursor = 0;

  function look(place, clientX, clientY) {
    cursor = clamp(place, 0, lrs.length - 1);
    tip.replaceChildren();
    add(tip, "div", {}, `lr: ${numberText(lrs[cursor])}`);
    const rows = add(add(tip, "table"), "tbody");
    for (const grid of scenario.grids) {
      const step = grid.steps.find((one) => one.lr === lrs[cursor]);
      if (!step?.[view.height]) continue;
      const row = add(rows, "tr"), name = add(row, "td"), [low, middle, high] = step[view.height];
      swatch(name, study.lines[grid.line], palette());
      name.append(` ${grid.name}, ${step.verdict}${step.best ? ", the best step" : ""}`);
      add(add(row, "td", {}, numberText(middle)), "small", {}, low === high ? "" : ` ${numberText(low)} to ${numberText(high)}`);
    }
    showTip(clientX, clientY);
  }
  drawing.addEventListener("pointermove", (event) => {
    const frame = drawing.getBoundingClientRect();
    const at = (event.clientX - frame.left) * drawing.viewBox.baseVal.width / frame.width;
    const far = lrs.map((lr) => Math.abs(shown.x(lr) - at));
    look(far.indexOf(Math.min(...far)), event.clientX, event.clientY);
  });
  drawing.addEventListener("pointerleave", hideTip);
  drawing.addEventListener("blur", hideTip);
  drawing.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const frame = drawing.getBoundingClientRect(), to = clamp(cursor + step, 0, lrs.length - 1);
    look(to, frame.left + shown.x(lrs[to]) * frame.width / drawing.viewBox.baseVal.width, frame.top + 40);
  });
  return () => {
    const width = Math.max(260, Math.round(figure.clientWidth));
    shown = drawSteps(drawing, study, scenario, view, { width, height: clamp(width * 0.5, 240, 320) }, palette());
  };
}
