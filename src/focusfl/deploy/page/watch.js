// How jobs are doing, asked for again and again; all text is set as text.

const EVERY = 2000, SILENT = 120, MOST = 200;
const main = document.getElementById("jobs"), link = document.getElementById("link");
let heard = 0;

function add(parent, tag, attributes = {}, text = "") {
  const drawn = ["svg", "rect"].includes(tag);
  const made = drawn ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(text);
  return parent.appendChild(made);
}

function clock(seconds) {
  const whole = Math.max(0, Math.round(seconds)), hours = Math.floor(whole / 3600);
  const rest = `${Math.floor(whole / 60) % 60}`.padStart(hours ? 2 : 1, "0") + ":" + `${whole % 60}`.padStart(2, "0");
  return hours ? `${hours}:${rest}` : rest;
}

function ago(seconds) {
  return seconds < 90 ? `${Math.max(0, Math.round(seconds))} s ago` : `${clock(seconds)} ago`;
}

function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) [count, unit] = [count / 1000, unit + 1];
  return `${unit ? count.toPrecision(3) : count} ${units[unit]}`;
}

function number(value) {
  if (value === null) return "∞";
  return value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5) ? value.toExponential(2) : `${+value.toPrecision(4)}`;
}

function tiles(parent, facts) {
  const list = add(parent, "dl", { class: "tiles" });
  for (const [name, value, amiss] of facts) {
    const tile = add(list, "div", amiss ? { class: "amiss" } : {});
    add(tile, "dt", {}, name);
    add(tile, "dd", {}, value);
  }
}

function strip(cell, recent) {
  const drawing = add(cell, "svg", { class: "strip", viewBox: "0 0 40 4", preserveAspectRatio: "none", role: "img" });
  drawing.setAttribute("aria-label", `counted in ${[...recent].filter((mark) => mark !== ".").length} of the last ${recent.length} rounds`);
  [...recent].forEach((mark, i) => add(drawing, "rect", { x: i, width: .8, height: 4, class: mark === "." ? "n" : mark }));
}

function sites(parent, job) {
  const names = Object.keys(job.sites).sort((a, b) =>
    STATES.indexOf(job.sites[a].state) - STATES.indexOf(job.sites[b].state) || a.localeCompare(b, "en", { numeric: true }));
  const columns = [["age", "age of memory"], ["counted", "counted"], ["late", "late"], ["unanswered", "unanswered"], ["refused", "refused"]];
  if (names.some((name) => (job.sites[name].epsilon ?? null) !== null)) columns.push(["epsilon", "epsilon"]);
  const table = add(add(parent, "div", { class: "wide" }), "table"), head = add(add(table, "thead"), "tr");
  for (const title of ["site", "state", "last rounds"]) add(head, "th", { scope: "col" }, title);
  for (const [, title] of columns) add(head, "th", { scope: "col", class: "number" }, title);
  add(head, "th", { scope: "col" }, "last error");
  const body = add(table, "tbody");
  for (const name of names.slice(0, MOST)) {
    const site = job.sites[name], row = add(body, "tr");
    add(row, "td", { "data-title": "site" }, name);
    const kind = site.state === "on time" ? "good" : ["late", "gone", "spent"].includes(site.state) ? "" : "bad";
    add(add(row, "td", { "data-title": "state" }), "span", { class: `word ${kind}` }, site.state);
    strip(add(row, "td", { "data-title": "last rounds" }), site.recent);
    for (const [key, title] of columns) {
      const quiet = site[key] === 0 && !["age", "counted"].includes(key);
      add(row, "td", { class: quiet ? "number zero" : "number", "data-title": title }, key === "epsilon" && (site[key] ?? null) !== null ? site[key].toPrecision(3) : `${site[key] ?? "–"}`);
    }
    add(row, "td", { class: "words", "data-title": "last error" }, site.error);
  }
  const note = add(parent, "p", { class: "note" });
  for (const [mark, words] of [["x", "counted"], ["l", "counted late"], ["n", "not counted"]]) {
    const key = add(note, "span", { class: "key" });
    add(key, "i", { class: mark });
    key.append(words);
  }
  if (names.length > MOST) note.append(`${names.length - MOST} more are in less trouble than these. `);
  note.append("The age of a site's memory is in rounds; – means that it has none in this generation.");
}

function show(name, job, now) {
  const section = add(main, "section", { class: "study" });
  add(section, "h2", {}, name);
  const left = job.state === "running" && job.round ? ` · ETA ${clock(job.eta)}` : "";
  const waits = job.awaited.length ? ` for ${job.awaited.join(", ")}` : "";
  const lead = add(section, "p", { class: "lead" }, `${job.state}${waits} · round ${job.round} of ${job.rounds} · generation ${job.generation}${left} · `);
  const silent = job.state === "running" && now - job.heard > SILENT + 10 * job.seconds;
  add(lead, "span", silent ? { class: "word bad" } : {}, `heard ${ago(now - job.heard)}`);
  const finding = add(section, "p", { class: "finding" });
  const early = job.state === "running" && job.round < 2;
  add(finding, "span", job.healthy ? { class: "word good" } : { class: early ? "word" : "word bad" }, job.healthy ? "healthy" : early ? "just begun" : "not healthy");
  if (!job.healthy && !early) finding.append(`: ${job.why.join(" ")}`);
  if (job.worse) {
    finding.append(" ");
    add(finding, "span", { class: "word bad" }, "getting worse");
    finding.append(`: ${job.worse}`);
  }
  const bar = add(section, "div", { class: "far", role: "progressbar", "aria-label": "rounds", "aria-valuenow": job.round, "aria-valuemax": job.rounds });
  add(bar, "div", { style: `width:${100 * job.round / (job.rounds || 1)}%` });
  const here = Object.values(job.sites).filter((site) => !["offline", "left out", "gone"].includes(site.state)).length;
  tiles(section, [
    ["sites online", `${here} of ${Object.keys(job.sites).length}`, here < Object.keys(job.sites).length],
    ["seconds a round", number(job.seconds)], ["sent to sites", bytes(job.bytes.down)], ["from sites", bytes(job.bytes.up)],
    ["late", `${job.late}`], ["unanswered", `${job.unanswered}`], ["refused", `${job.refused}`, job.refused],
    ["strangers", `${job.strangers}`, job.strangers],
    ...Object.entries(job.metrics).map(([metric, value]) => [metric.replaceAll("_", " "), number(value)]),
  ]);
  for (const words of [...job.notices, ...job.warnings].filter((words) => !job.why.includes(words))) add(section, "p", { class: "note" }, `Note: ${words}`);
  add(section, "h3", {}, "Sites");
  sites(section, job);
}

async function look() {
  try {
    const answer = await fetch("/health.json", { cache: "no-store", signal: AbortSignal.timeout(10 * EVERY) });
    const found = await answer.json(), at = scrollY;
    main.replaceChildren();
    const jobs = Object.entries(found.jobs).sort(([, a], [, b]) => (a.state === "ended") - (b.state === "ended") || b.heard - a.heard);
    for (const [name, job] of jobs) show(name, job, found.now);
    if (!main.children.length) add(main, "p", { class: "lead" }, "No job has written anything here yet.");
    scrollTo(scrollX, at);
    heard = Date.now();
    link.textContent = `as of ${new Date().toLocaleTimeString()}`;
    link.className = "";
  } catch {
    link.textContent = `focusfl deploy watch does not answer${heard ? `, since ${new Date(heard).toLocaleTimeString()}` : ""}; trying again`;
    link.className = "lost";
  }
  setTimeout(look, EVERY);
}

look();
