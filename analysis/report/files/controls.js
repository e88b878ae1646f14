// What the reader can press: all of it is made here, so that without JavaScript nothing is dead.

/** A small line and mark as the curve has them. */
function sample(curve) {
  const one = look(curve);
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("width", "26");
  svg.setAttribute("height", "12");
  svg.setAttribute("aria-hidden", "true");
  const add = (kind, attributes) => {
    const node = document.createElementNS(space, kind);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    svg.append(node);
  };
  const dashes = { solid: "", dashdot: "7 3 2 3", dot: "2 2.5", longdash: "10 3", longdashdot: "9 3 2 3", dash: "5 3" };
  const dash = dashes[one.dash] ?? one.dash.replace(/px/g, "").replace(/,/g, " ");
  add("line", { x1: 0, y1: 6, x2: 26, y2: 6, stroke: one.colour, "stroke-width": 2, "stroke-dasharray": dash });
  const shapes = {
    circle: "M13 2a4 4 0 1 0 .01 0z", square: "M9 2h8v8h-8z", "triangle-up": "M13 1l5 9h-10z", diamond: "M13 1l5 5l-5 5l-5-5z",
    "triangle-down": "M13 11l5-9h-10z", cross: "M11 1h4v3h3v4h-3v3h-4v-3h-3v-4h3z", x: "M9 1l4 3l4-3l2 2l-3 3l3 3l-2 2l-4-3l-4 3l-2-2l3-3l-3-3z",
  };
  add("path", { d: shapes[one.marker] || shapes.circle, fill: one.colour });
  return svg;
}

/** A labelled <select>; `options` are {value, text, disabled, group}. */
function picker(id, label, options, value, change) {
  const select = element("select", { id, onchange: (event) => change(event.target.value) });
  const groups = new Map();
  for (const each of options) {
    const option = element("option", { value: each.value, disabled: each.disabled, title: each.title }, each.text);
    if (!each.group) {
      select.append(option);
      continue;
    }
    if (!groups.has(each.group)) {
      groups.set(each.group, element("optgroup", { label: each.group }));
      select.append(groups.get(each.group));
    }
    groups.get(each.group).append(option);
  }
  select.value = value;
  return element("div", { class: "control" }, element("span", { id: id + "-label" }, label), withLabel(select, id));
}

function withLabel(select, id) {
  select.setAttribute("aria-labelledby", id + "-label");
  return select;
}

/** Buttons of which one is pressed. */
function choices(id, label, options, value, change) {
  const buttons = options.map(([key, text]) =>
    element("button", { type: "button", id: id + "-" + key, "aria-pressed": String(key === value), onclick: () => change(key) }, text),
  );
  return element("fieldset", { class: "control" }, element("legend", {}, label), element("div", { class: "chips" }, ...buttons));
}

/** The published curves, those of the panel's own workload or data set first. */
function publishedOptions(panel) {
  const near = (other) => (other.workload && other.workload === panel.workload ? 0 : other.dataset && other.dataset === panel.dataset ? 1 : 2);
  const order = data.published.map((other, i) => ({ other, i, near: near(other) }));
  order.sort((a, b) => a.near - b.near || a.i - b.i);
  const group = ["same workload", "same data set", "other workloads"];
  return [{ value: "", text: "none" }, ...order.map((each) => ({ value: String(each.i), text: each.other.label, group: group[each.near] }))];
}

/** Everything above the main chart of a panel. */
function buildControls(panel) {
  const place = document.querySelector(`[data-controls="${panel.id}"]`);
  if (!place) return;
  const mine = choice(panel);
  const view = viewOf(panel);
  const set = (change) => () => {
    change();
    renewPanel(panel);
  };
  const parts = [];
  if (view.curves.length > 1) {
    const chips = view.curves.map((curve, i) =>
      element(
        "button",
        {
          type: "button", id: `${panel.id}-curve-${i}`, "aria-pressed": String(!mine.hidden.has(curve.label)),
          onclick: set(() => (mine.hidden.has(curve.label) ? mine.hidden.delete(curve.label) : mine.hidden.add(curve.label))),
        },
        sample(curve), curve.label,
      ),
    );
    if (view.curves.length > 3) {
      chips.push(element("button", { type: "button", id: `${panel.id}-all`, onclick: set(() => mine.hidden.clear()) }, "all"));
      chips.push(element("button", { type: "button", id: `${panel.id}-none`, onclick: set(() => view.curves.forEach((curve) => mine.hidden.add(curve.label))) }, "none"));
    }
    parts.push(element("fieldset", { class: "control curves" }, element("legend", {}, "Curves"), element("div", { class: "chips" }, ...chips)));
  }
  const refused = panel.goals.filter((goal) => !goal.view);
  if (panel.goals.length > 1) {
    const options = panel.goals.map((goal) => ({
      value: goal.view || "refused:" + goal.target, text: (goal.target || "as recorded") + (goal.view ? "" : " (not known)"), disabled: !goal.view, title: goal.reason,
    }));
    parts.push(picker(`${panel.id}-target`, "Target", options, mine.view, (value) => { mine.view = value; renewPanel(panel); }));
  }
  parts.push(choices(`${panel.id}-y`, "Count", [["steps", "steps"], ["examples", examplesOf(view.curves)]], mine.y, (value) => { mine.y = value; renewPanel(panel); }));
  const relative = [
    { value: "none", text: "as measured" }, { value: "size", text: "over one batch size" }, { value: "least", text: "over the least" },
  ];
  parts.push(picker(`${panel.id}-relative`, "Normalize", relative, mine.relative, (value) => { mine.relative = value; renewPanel(panel); }));
  if (mine.relative === "size") {
    const sizes = [...new Set(view.curves.flatMap((curve) => curve.points.batch_size))].sort((a, b) => a - b);
    if (!sizes.includes(mine.base)) mine.base = sizes[0];
    parts.push(picker(`${panel.id}-base`, "Batch size", sizes.map((size) => ({ value: String(size), text: whole(size) })), String(mine.base), (value) => { mine.base = Number(value); renewPanel(panel); }));
  }
  if (data.published.length) {
    parts.push(picker(`${panel.id}-overlay`, "Published overlay", publishedOptions(panel), mine.overlay, (value) => { mine.overlay = value; renewPanel(panel); }));
  }
  for (const goal of refused) {
    parts.push(element("p", { class: "reason" }, `${goal.target} is not known: ${goal.reason}.`));
  }
  place.replaceChildren(...parts);
}

/** The choice of a search whose trials are shown. */
function buildTried(panel) {
  const place = document.querySelector(`[data-tried="${panel.id}"]`);
  if (!place) return;
  const some = triedOf(panel);
  if (!some) {
    place.replaceChildren();
    return;
  }
  const mine = choice(panel).tried;
  const again = () => {
    buildTried(panel);
    redraw(`${panel.id}-tried`);
    focusOn(mine.focus);
  };
  const curves = some.curves.map((curve) => ({ value: curve.label, text: curve.label }));
  const sizes = some.all.map((each) => ({ value: String(each.batch_size), text: whole(each.batch_size) }));
  place.replaceChildren(
    picker(`${panel.id}-tried-curve`, "Curve", curves, some.curve.label, (value) => { mine.curve = value; mine.focus = `${panel.id}-tried-curve`; again(); }),
    picker(`${panel.id}-tried-size`, "Batch size", sizes, String(some.found.batch_size), (value) => { mine.curve = some.curve.label; mine.size = Number(value); mine.focus = `${panel.id}-tried-size`; again(); }),
  );
}

function focusOn(id) {
  const node = id ? document.getElementById(id) : null;
  if (node && node !== document.activeElement) node.focus({ preventScroll: true });
}

/** The trial behind a point that was pressed: what it was, how it trained, how to train it again. */
function showTrial(panel, label, size) {
  const place = document.getElementById(`${panel.id}-trial`);
  const curve = viewOf(panel).curves.find((each) => each.label === label);
  const row = curve && rowsOf(curve).find((each) => each.batch_size === size);
  if (!place || !row) return;
  const close = element("button", { type: "button", "aria-label": "Close", onclick: () => place.replaceChildren() }, "×");
  const lines = behind(curve, row).map((text) => element("p", {}, text));
  const best = data.best_trials[row.trial] || {};
  if (best.command) lines.push(element("p", {}, element("code", {}, best.command)));
  const mine = choice(panel);
  mine.trained = best.steps ? { best, curve } : null;
  const chart = mine.trained && element("div", { class: "chart", id: `${panel.id}-training`, "data-chart": "training", "data-of": panel.id });
  place.replaceChildren(close, element("p", {}, element("b", {}, name(curve, size))), ...lines, ...(chart ? [chart] : []));
  if (chart) draw(chart);
}

/** Light, dark, or as the system has it. */
function buildTools() {
  const place = document.getElementById("tools");
  const words = { auto: "theme: auto", light: "theme: light", dark: "theme: dark" };
  const next = { auto: "dark", dark: "light", light: "auto" };
  const button = element("button", { type: "button", id: "theme" }, words[chosen.theme]);
  button.addEventListener("click", () => {
    chosen.theme = next[chosen.theme];
    button.textContent = words[chosen.theme];
    if (chosen.theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen.theme;
    renewAll();
  });
  place.replaceChildren(button);
}
