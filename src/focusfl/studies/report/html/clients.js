// Who took part: clients by rounds, how often each does beside it, how old its gradient is.

const LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const VIEWS = [{ name: "share", label: "took part" }, { name: "age", label: "age of the gradient" }];
const DEEPEST = 0.85; // of the way from paper to accent

function picture(letters, rows, columns, colours) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [columns, rows];
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  const known = Array.from(LEVELS, (_, level) =>
    channels(mix(colours.paper, colours.accent, DEEPEST * level / (LEVELS.length - 1))));
  for (let i = 0; i < letters.length; i++) image.data.set([...known[LEVELS.indexOf(letters[i])], 255], 4 * i);
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

// A letter of the picture, read back as a number.
function valueAt(found, name, row, column) {
  const share = LEVELS.indexOf(found[name][row * found.columns + column]) / (LEVELS.length - 1);
  return name === "share" ? share * found.most : Math.expm1(share * Math.log1p(found.oldest));
}

function drawClients(drawing, found, name, size, colours) {
  const bars = Math.min(90, size.width * 0.2);
  const box = { left: 38, right: size.width - bars - 22, top: 24, bottom: size.height - 40 };
  drawing.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
  drawing.replaceChildren();
  const height = (box.bottom - box.top) / found.rows;
  add(drawing, "image", {
    href: picture(found[name], found.rows, found.columns, colours), x: box.left, y: box.top,
    width: box.right - box.left, height: box.bottom - box.top, preserveAspectRatio: "none",
    style: "image-rendering: pixelated",
  });
  add(drawing, "rect", {
    x: box.left - 0.5, y: box.top - 0.5, width: box.right - box.left + 1, height: box.bottom - box.top + 1,
    fill: "none", stroke: colours.line,
  });
  const words = add(drawing, "g", { fill: colours.quiet, "font-size": 11.5 });
  const x = scale(0, found.rounds, box.left, box.right, false);
  below(words, box, x);
  add(words, "text", { x: box.right, y: box.bottom + 33, "text-anchor": "end" }, "rounds");
  key(drawing, words, box, name === "share" ? `${+(100 * found.most).toPrecision(2)} %` : numberText(Math.round(found.oldest)), colours);
  add(words, "text", { x: 2, y: 11 }, found.order ? "client" : `${found.clients.toLocaleString("en")} clients`);
  const stride = Math.ceil(15 / height);
  for (let row = 0; found.order && row < found.rows; row += stride) {
    add(words, "text", { x: box.left - 6, y: box.top + (row + 0.5) * height + 4, "text-anchor": "end" }, found.order[row]);
  }
  const most = Math.max(...found.p, ...found.seen), bar = scale(0, most, box.right + 12, size.width - 4, false);
  add(words, "text", { x: box.right + 12, y: 11 }, "pᵢ");
  add(words, "text", { x: size.width - 4, y: box.bottom + 16, "text-anchor": "end" }, numberText(+most.toPrecision(2)));
  const thick = Math.max(0.5, height * (height > 4 ? 0.7 : 1));
  found.p.forEach((p, row) => {
    const top = box.top + row * height + (height - thick) / 2;
    add(drawing, "rect", { class: "p", x: box.right + 12, y: top, width: bar(p) - box.right - 12, height: thick, fill: colours.accent, "fill-opacity": 0.45 });
    add(drawing, "path", { d: `M${bar(found.seen[row]).toFixed(1)} ${top}v${thick}`, stroke: colours.ink, "stroke-width": 1.5 });
  });
  return { box, height };
}

// What the shades mean: from nothing to the most there is.
function key(drawing, words, box, most, colours) {
  add(words, "text", { x: box.left, y: box.bottom + 33 }, "0");
  for (let step = 0; step < 8; step++) add(drawing, "rect", {
    x: box.left + 11 + 6 * step, y: box.bottom + 25, width: 6, height: 8, fill: mix(colours.paper, colours.accent, DEEPEST * step / 7),
  });
  add(words, "text", { x: box.left + 63, y: box.bottom + 33 }, most);
}

function clientPanel(parent, scenario, view) {
  const found = scenario.clients, figure = add(parent, "figure", { class: "panel" });
  const gaps = scenario.groups.map((group) => group.tracking_gap).filter((gap) => gap !== null);
  const caption = add(figure, "figcaption", {}, scenario.name);
  if (gaps.length) add(caption, "small", {}, `tracking gap at most ${numberText(Math.max(...gaps))}`);
  const drawing = add(figure, "svg", { tabindex: 0, role: "img", "aria-label": `who took part, ${scenario.name}` });
  let shown, cell = [0, 0];

  function look(row, column, clientX, clientY) {
    cell = [clamp(row, 0, found.rows - 1), clamp(column, 0, found.columns - 1)];
    [row, column] = cell;
    const first = Math.ceil(column * found.rounds / found.columns);
    const last = Math.ceil((column + 1) * found.rounds / found.columns) - 1;
    const each = found.clients / found.rows;
    tip.replaceChildren();
    add(tip, "div", {}, found.order ? `client ${found.order[row]}`
      : `clients ${Math.ceil(row * each) + 1} to ${Math.ceil((row + 1) * each)} by p`);
    add(tip, "div", {}, first === last ? `round ${first}` : `rounds ${first} to ${last}`);
    const percent = (share) => `${+(100 * share).toPrecision(3)} %`;
    const rows = add(add(tip, "table"), "tbody");
    for (const [words, text] of [
      ["took part here", percent(valueAt(found, "share", row, column))],
      ["age of the gradient", `about ${numberText(Math.round(valueAt(found, "age", row, column)))} rounds`],
      ["in the whole draw", percent(found.seen[row])], ["expected, p", percent(found.p[row])],
    ]) {
      const line = add(rows, "tr");
      add(line, "td", {}, words);
      add(line, "td", {}, text);
    }
    showTip(clientX, clientY);
  }
  drawing.addEventListener("pointermove", (event) => {
    const frame = drawing.getBoundingClientRect(), ratio = drawing.viewBox.baseVal.width / frame.width;
    const [x, y] = [(event.clientX - frame.left) * ratio, (event.clientY - frame.top) * ratio];
    const { box, height } = shown;
    if (y < box.top || y > box.bottom || x < box.left) return hideTip();
    const across = Math.floor((x - box.left) / (box.right - box.left) * found.columns);
    look(Math.floor((y - box.top) / height), across, event.clientX, event.clientY);
  });
  drawing.addEventListener("pointerleave", hideTip);
  drawing.addEventListener("blur", hideTip);
  drawing.addEventListener("keydown", (event) => {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!steps) return;
    event.preventDefault();
    const frame = drawing.getBoundingClientRect(), ratio = frame.width / drawing.viewBox.baseVal.width;
    const { box, height } = shown;
    const [row, column] = [cell[0] + steps[0], cell[1] + steps[1]];
    look(row, column, frame.left + (box.left + column / found.columns * (box.right - box.left)) * ratio,
      frame.top + (box.top + row * height) * ratio);
  });
  return () => {
    const width = Math.max(260, Math.round(figure.clientWidth));
    const height = clamp(70 + 12 * found.rows, 200, 420);
    shown = drawClients(drawing, found, view.clients, { width, height }, palette());
  };
}
