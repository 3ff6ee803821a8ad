// What the page gives away: its data as CSV and JSON, its figure as SVG and PNG.

function downloads(section, study, view) {
  const row = section.querySelector(".downloads");
  const offer = (label, act) => add(row, "button", { type: "button" }, label).addEventListener("click", act);
  offer("Curves (CSV)", () => save(`${study.name}-curves.csv`, "text/csv", curvesAsCsv(study)));
  offer("Table (CSV)", () => save(`${study.name}-table.csv`, "text/csv", tableAsCsv(section.querySelector(".wide table"))));
  offer("All data (JSON)", () => save(`${study.name}.json`, "application/json", JSON.stringify(study, null, 1)));
  offer("Figure (SVG)", () => save(`${study.name}.svg`, "image/svg+xml", figureAsSvg(study, view)));
  offer("Figure (PNG)", async () => save(`${study.name}.png`, "image/png", await figureAsPng(study, view)));
  offer("Print or PDF", () => print());
}

function save(name, type, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name.replace(/[^\w.-]+/g, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function csv(rows) {
  const field = (value) => /[",\r\n]/.test(value ?? "") ? `"${String(value).replace(/"/g, '""')}"` : value ?? "";
  return rows.map((row) => row.map(field).join(",")).join("\n") + "\n";
}

function tableAsCsv(table) {
  return csv([...table.rows].map((row) => [...row.cells].map((cell) => cell.dataset.value ?? cell.textContent)));
}

function curvesAsCsv(study) {
  const axisNames = contents.axes.map((axis) => axis.name);
  const rows = [["participation", "curve", "lr", "local_steps", ...axisNames, "metric", "median", "first_quartile", "third_quartile"]];
  for (const scenario of study.scenarios) for (const group of scenario.groups) {
    for (const [metric, curve] of Object.entries(group.curves)) {
      const raise = (values, i) => (values ?? curve.mid)[i] === null ? "inf" : (values ?? curve.mid)[i] + (scenario.lowest[metric] ?? 0);
      curve.mid.forEach((_, i) => rows.push([
        scenario.name, study.lines[group.line].label, group.lr, group.local_steps, ...axisNames.map((axis) => curve[axis][i]),
        metric, raise(curve.mid, i), raise(curve.low, i), raise(curve.high, i),
      ]));
    }
  }
  return csv(rows);
}

// All panels and the legend in one drawing, on white, as the page shows them now.
function figureDrawing(study, view) {
  const size = { width: 400, height: 290, name: "saved" }, across = Math.min(3, study.scenarios.length);
  const host = document.createElement("div"), drawing = add(host, "svg", { "font-family": "sans-serif" });
  const range = heights(study.scenarios.flatMap((scenario) => series(study, scenario, view)), study, view);
  const down = Math.ceil(study.scenarios.length / across), whole = across * size.width;
  const background = add(drawing, "rect", { width: "100%", height: "100%", fill: LIGHT.paper });
  study.scenarios.forEach((scenario, i) => {
    const [left, top] = [i % across * size.width, Math.floor(i / across) * (size.height + 26)];
    add(drawing, "text", { x: left + 2, y: top + 18, "font-size": 14, "font-weight": 600, fill: LIGHT.ink }, scenario.name);
    const panel = add(drawing, "svg", { x: left, y: top + 24, width: size.width, height: size.height });
    drawPanel(panel, study, scenario, view, range, size, LIGHT);
  });
  let [x, y] = [4, down * (size.height + 26) + 14];
  linesOf(study, view).filter(({ number }) => !view.hidden.has(number)).forEach(({ line }) => {
    const length = 44 + 7.2 * line.label.length;
    if (x + length > whole) [x, y] = [4, y + 20];
    swatch(drawing, line, LIGHT, { x, y: y - 10 });
    add(drawing, "text", { x: x + 36, y, "font-size": 12.5, fill: LIGHT.ink }, line.label);
    x += length;
  });
  const [width, height] = [whole, y + 12];
  for (const [key, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) drawing.setAttribute(key, value);
  background.setAttribute("height", height);
  return drawing;
}

function figureAsSvg(study, view) {
  return new XMLSerializer().serializeToString(figureDrawing(study, view));
}

async function figureAsPng(study, view) {
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(figureAsSvg(study, view));
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [3 * image.width, 3 * image.height];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
