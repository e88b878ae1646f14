// A page that renews itself: it asks for the state every 5 s, and keeps what the reader has chosen.

const EVERY = 5000;
let etag = null;

/** Whether a list is unfolded: a page made anew would close it. */
function choosing() {
  return CSS.supports("selector(:open)") && document.querySelector("select:open") !== null;
}

async function ask(address) {
  if (choosing()) {
    window.setTimeout(() => ask(address), EVERY);
    return;
  }
  try {
    const answer = await fetch(address, { headers: etag ? { "If-None-Match": etag } : {}, cache: "no-store" });
    if (answer.status === 304) {
      heard(true);
    } else if (answer.ok) {
      const state = await answer.json();
      etag = answer.headers.get("ETag");
      if (state.status) showStatus(state.status);
      // The payload is dated: the same one again leaves the page alone.
      if (state.payload && (!data || state.payload.made !== data.made)) renew(state.payload);
      heard(true);
    } else {
      heard(false, "the server answers " + answer.status);
    }
  } catch (error) {
    heard(false, "the server does not answer: it may have been stopped");
  }
  window.setTimeout(() => ask(address), EVERY);
}

/** Say so while nothing is heard; what was shown stays. */
function heard(well, why) {
  const place = document.getElementById("status");
  let line = document.getElementById("unheard");
  if (well) {
    if (line) line.remove();
    return;
  }
  if (!line) {
    line = element("p", { class: "error", id: "unheard", role: "alert" });
    place.append(line);
  }
  line.textContent = why + "; asking again";
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return null;
  if (seconds < 90) return Math.round(seconds) + " s";
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return minutes + " min";
  return Math.floor(minutes / 60) + " h " + (minutes % 60) + " min";
}

function cells(kind, values) {
  return element("tr", {}, ...values.map((value) => (value instanceof Node ? element(kind, {}, value) : element(kind, typeof value === "number" ? { class: "number" } : {}, value === null || value === undefined ? "" : typeof value === "number" ? told(value) : String(value)))));
}

/** A table of the status panel: headings, rows of values. */
function statusTable(caption, names, rows) {
  const head = element("tr", {}, ...names.map((text, i) => element("th", { scope: "col", class: rows.length && typeof rows[0][i] === "number" ? "number" : null }, text)));
  const table = element("table", {}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...rows.map((row) => cells("td", row))));
  return element("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, table);
}

/** What one cell of the grid says by a sign, a colour and a word, so that none is needed alone. */
function cellState(cell) {
  if (cell.failed) return ["failed", "!"];
  if (cell.running) return ["training", "▶"];
  if (cell.left) return [cell.done ? "begun" : "waiting", cell.done ? "…" : "·"];
  return cell.reached ? ["done", "✓"] : ["not reached", "✕"];
}

/** Batch size × optimizer: how far each study is, as trials done of those wanted. */
function grid(all) {
  const sizes = [...new Set(all.map((cell) => cell.batch_size))].sort((a, b) => a - b);
  const several = new Set(all.map((cell) => cell.experiment)).size > 1;
  const rows = new Map();
  for (const cell of all) {
    const name = (several ? cell.experiment + " · " : "") + cell.optimizer;
    if (!rows.has(name)) rows.set(name, new Map());
    rows.get(name).set(cell.batch_size, cell);
  }
  const shown = (cell) => {
    if (!cell) return "";
    const [word, sign] = cellState(cell);
    const text = `${sign} ${cell.done}/${cell.wanted}`;
    return element("span", { class: "cell " + word.replace(" ", "-"), title: `${word}: ${cell.reached} of ${cell.done} reached the target` }, text);
  };
  const table = [...rows].map(([name, row]) => [name, ...sizes.map((size) => shown(row.get(size)))]);
  return statusTable("Trials done, by batch size", ["", ...sizes.map((size) => size.toLocaleString("en-US"))], table);
}

/** "Begun 23:50; about 1 h 10 min left, until 02:10." */
function times(status) {
  const clock = (date) => date.toLocaleString([], { weekday: "short", hour: "2-digit", minute: "2-digit", hour12: false });
  const at = new Date(status.time || NaN);
  const begun = new Date(status.begun || NaN);
  const left = duration(status.seconds_left);
  const parts = [];
  if (!Number.isNaN(begun.getTime())) parts.push("Begun " + clock(begun));
  if (left) parts.push(`about ${left} left` + (Number.isNaN(at.getTime()) ? "" : ", until " + clock(new Date(at.getTime() + 1000 * status.seconds_left))));
  if (!Number.isNaN(at.getTime())) parts.push("as of " + clock(at));
  return parts.length ? element("p", { class: "quiet" }, parts.join("; ") + ".") : null;
}

/** How the sweep goes: what is done and left, what runs, its last metrics, what failed, the time left. */
function showStatus(status) {
  const place = document.getElementById("status");
  if (!place) return;
  const parts = [element("p", { class: "sentence" }, status.sentence || ""), times(status)];
  if (status.error) parts.push(element("p", { class: "error", role: "alert" }, status.error));
  const cells = status.cells || [];
  if (cells.length) {
    parts.push(grid(cells));
    parts.push(element("p", { class: "quiet" }, "✓ reached the target; ✕ did not; ▶ in training; … begun; ! a trial failed."));
  }
  const packs = status.packs || [];
  if (packs.length) {
    const rows = packs.map((each) => [each.experiment, each.optimizer, each.batch_size, each.trials, each.step, each.metric, each.best, each.machine, each.silent ? "silent" : "running"]);
    parts.push(statusTable("Running now", ["experiment", "optimizer", "batch size", "trials", "step", "metric", "best now", "machine", ""], rows));
  }
  const failed = status.failed_trials || [];
  if (failed.length) {
    const rows = failed.map((each) => [each.experiment, each.optimizer, each.batch_size, element("span", { class: "failure" }, each.error), element("code", {}, each.command)]);
    parts.push(statusTable("Failed trials", ["experiment", "optimizer", "batch size", "error", "to repeat it"], rows));
  }
  const experiments = status.experiments || [];
  if (experiments.length) {
    const rows = experiments.map((each) => {
      const share = each.wanted ? Math.min(1, each.done / each.wanted) : 0;
      const bar = element("span", { class: "bar", role: "img", "aria-label": Math.round(100 * share) + " % done" }, element("i", { style: `width:${100 * share}%` }));
      return [each.experiment, each.workload, each.optimizer, bar, each.done, each.wanted, each.reached, each.infeasible, each.dominated, each.failed, each.running, each.left];
    });
    parts.push(statusTable("Trials", ["experiment", "workload", "optimizer", "", "done", "wanted", "reached", "infeasible", "dominated", "failed", "running", "left"], rows));
  }
  place.replaceChildren(...parts.filter((part) => part !== null));
}

/** A new payload in the place of the old one: choices, sorting, zoom, focus and place are kept. */
function renew(next) {
  const main = document.getElementById("main");
  const open = new Map([...main.querySelectorAll("details[id]")].map((node) => [node.id, node.open]));
  const charts = new Map([...main.querySelectorAll(".chart[data-drawn]")].map((node) => [node.id, node]));
  const said = new Map([...main.querySelectorAll(".trial")].map((node) => [node.id, node]));
  const focus = document.activeElement ? document.activeElement.id : null;
  const down = window.scrollY;
  data = next;
  document.title = next.title + " · batchscale";
  main.innerHTML = next.html;
  for (const [id, was] of open) {
    const node = document.getElementById(id);
    if (node) node.open = was;
  }
  for (const kept of [charts, said]) {
    for (const [id, node] of kept) {
      const place = document.getElementById(id);
      if (place) place.replaceWith(node);
    }
  }
  build();
  focusOn(focus);
  window.scrollTo({ top: down, behavior: "instant" });
}
