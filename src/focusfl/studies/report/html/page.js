// The page: switches, legend, sortable tables.

const contents = JSON.parse(document.getElementById("contents").textContent);
const redraws = [];

contents.studies.forEach((study, index) => {
  study.index = index;
  const section = document.getElementById(`study-${index}`), view = { ...newView(study), clients: "share" };
  const draw = [], drawBelow = [], drawGrids = [];
  const say = (words) => { section.querySelector(".said").textContent = words; };
  const redraw = () => {
    const all = study.scenarios.flatMap((scenario) => series(study, scenario, view));
    const range = heights(all, study, view);
    draw.forEach((one) => one(range));
    legend(section.querySelector(".legend"), study, view, redraw, say);
    drawGrids.forEach((one) => one());
    section.classList.toggle("best", !view.all);
    cut(section);
  };
  const again = () => { redraw(); drawBelow.forEach((one) => one()); };
  if (study.grid) grids(section, study, view, redraw, say);
  switches(section.querySelector(".controls"), study, view, redraw);
  choice(section.querySelector(".views"), "colour", `clients-${index}`, VIEWS, view.clients, (name) => {
    view.clients = name;
    drawBelow.forEach((one) => one());
  });
  const served = study.scenarios.find((scenario) => scenario.served)?.served;
  if (served) {
    view.served = served.metrics[0].name;
    choice(section.querySelector(".metric"), "metric", `served-${index}`, served.metrics, view.served, (name) => {
      view.served = name;
      drawBelow.forEach((one) => one());
    });
  }
  study.scenarios.forEach((scenario) => {
    if (scenario.served) drawBelow.push(stripPanel(section.querySelector(".strips"), study, scenario, view));
    draw.push(curvePanel(section.querySelector(".curves"), study, scenario, view, redraw));
    if (study.grid) drawGrids.push(stepPanel(section.querySelector(".steps .panels"), study, scenario, view));
    drawBelow.push(clientPanel(section.querySelector(".clients"), scenario, view));
  });
  sortable(section.querySelector(".wide table"));
  downloads(section, study, view);
  redraws.push(again);
  again();
});

const redrawAll = () => { hideTip(); redraws.forEach((one) => one()); };
let width = innerWidth; // a phone's bars come and go, and change the height alone
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redrawAll(); } });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
matchMedia("print").addEventListener("change", redrawAll);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));

function choice(form, title, group, options, chosen, act) {
  const field = add(form, "fieldset");
  add(field, "legend", {}, title);
  const row = add(field, "div", { class: "choice" });
  for (const { name, label } of options) {
    const one = add(row, "label");
    const input = add(one, "input", { type: "radio", name: group, value: name, checked: name === chosen ? "" : null });
    input.addEventListener("change", () => act(name));
    add(one, "span", {}, label);
  }
  return field;
}

// A grid of step sizes: the best of each algorithm, or all; what they end with.
function grids(section, study, view, redraw, say) {
  section.querySelector(".steps").hidden = false;
  const count = section.querySelector(".wide").querySelectorAll("tbody tr").length;
  const fields = [...section.querySelectorAll(".controls, .rows")].map((form, place) => {
    form.hidden = false;
    return choice(form, "steps", `steps-${study.index}-${place}`,
      [{ name: "best", label: "best of each" }, { name: "all", label: `all ${count}` }], "best", (name) => {
        view.all = name === "all";
        for (const field of fields) field.querySelector(`[value=${name}]`).checked = true;
        say(view.all ? "every step size is shown" : "the best step size of each algorithm is shown");
        redraw();
      });
  });
  choice(section.querySelector(".heights"), "y", `height-${study.index}`,
    study.heights.map(({ name, short }) => ({ name, label: short })), view.height, (name) => { view.height = name; redraw(); });
}

// Say so where a table is wider than there is room for it.
function cut(section) {
  const box = section.querySelector(".wide");
  section.querySelector(".more").hidden = box.scrollWidth <= box.clientWidth + 1;
}

function switches(form, study, view, redraw) {
  form.addEventListener("submit", (event) => event.preventDefault());
  choice(form, "x", `x-${study.index}`, contents.axes, view.x, (name) => {
    view.x = name;
    view.zoom.clear();
    redraw();
  });
  choice(form, "y", `y-${study.index}`, study.metrics.map(({ name, short }) => ({ name, label: short })),
    view.y, (name) => { view.y = name; showReference(); redraw(); });
  for (const [name, label] of [
    ["logY", "log y"], ["logX", "log x"], ["relative", "relative to the best"], ["bands", "quartiles"], ["theory", "theory"],
  ]) {
    const one = add(form, "label", { class: "tick" });
    const input = add(one, "input", { type: "checkbox", name, checked: view[name] ? "" : null });
    input.addEventListener("change", () => { view[name] = input.checked; view.zoom.clear(); redraw(); });
    one.append(label);
  }
  const one = add(form, "label", { class: "tick" }, "reference line");
  const input = add(one, "input", { type: "text", name: "reference", inputmode: "decimal" });
  const showReference = () => { input.value = view.references[view.y] ?? ""; };
  input.addEventListener("change", () => {
    const value = Number(input.value);
    input.setAttribute("aria-invalid", !Number.isFinite(value));
    view.references[view.y] = Number.isFinite(value) && input.value.trim() ? value : null;
    redraw();
  });
  showReference();
}

function legend(parent, study, view, redraw, say) {
  const focused = [...parent.children].indexOf(document.activeElement);
  parent.replaceChildren();
  const lines = linesOf(study, view);
  lines.forEach(({ line, number }) => {
    const button = add(parent, "button", { type: "button", "aria-pressed": String(!view.hidden.has(number)) });
    swatch(button, line, palette());
    button.append(line.label);
    button.addEventListener("click", () => {
      const shown = view.hidden.delete(number);
      if (!shown) view.hidden.add(number);
      const left = lines.filter((one) => !view.hidden.has(one.number)).length;
      say(`${line.label} ${shown ? "shown" : "hidden"}: ${left} of ${lines.length} curves are shown`);
      redraw();
    });
  });
  if (view.theory && view.y === "distance" && !view.relative) {
    const told = study.scenarios.flatMap((scenario) => scenario.groups.map((group) => group.theory));
    for (const [name, label, dash] of [
      ["rate", "predicted rate", "7 4"], ["bias", "predicted bias, of the mean iterate", "2 3"], ["floor", "noise floor", "7 3 2 3"],
    ]) {
      if (!told.some((theory) => theory[name] > 0)) continue;
      const key = add(parent, "span", { class: "key" });
      const drawing = add(key, "svg", { width: 30, height: 12, "aria-hidden": "true" });
      add(drawing, "path", { d: "M1 6H29", stroke: palette().quiet, "stroke-width": 1.2, "stroke-dasharray": dash });
      key.append(label);
    }
  }
  if (focused >= 0) parent.children[focused]?.focus();
}

// Numbers by their value, words by the alphabet, unknown last either way.
function sortable(table) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const key = (row) => {
        const cell = row.cells[column], value = cell.dataset.value;
        if (value === undefined) return cell.textContent === "–" ? NaN : cell.textContent;
        if (cell.classList.contains("verdict")) return value;
        return value === "inf" ? Infinity : Number(value);
      };
      const order = (a, b) => {
        const [x, y] = [key(a), key(b)];
        if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
        const rising = typeof x === "string" ? x.localeCompare(y) : x === y ? 0 : x < y ? -1 : 1;
        return falling ? -rising : rising;
      };
      body.append(...[...body.rows].sort(order));
    });
  });
}
