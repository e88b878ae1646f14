// What all parts share: the data, what the reader has chosen, and how numbers and colours are told.

/** @returns {any} what stands in a <script type="application/json">. */
function embedded(id) {
  const node = document.getElementById(id);
  return node ? JSON.parse(node.textContent) : null;
}

let data = embedded("data");

// What the reader has chosen, by panel; it outlives every renewal of the data.
const chosen = { theme: "auto", panels: {}, sorted: {}, printing: false };

/** The choices of a panel, made when first asked for. */
function choice(panel) {
  if (!chosen.panels[panel.id]) {
    const view = panel.views[0];
    const many = view.curves.length > data.most_shown;
    chosen.panels[panel.id] = {
      view: view.id,
      hidden: new Set(many ? view.curves.slice(data.most_shown).map((curve) => curve.label) : []),
      y: "steps",
      relative: "none",
      base: null,
      overlay: "",
      tried: { curve: null, size: null },
      trained: null,
    };
  }
  const mine = chosen.panels[panel.id];
  if (!panel.views.some((view) => view.id === mine.view)) mine.view = panel.views[0].id;
  return mine;
}

function panelOf(id) {
  return data.panels.find((panel) => panel.id === id);
}

function viewOf(panel) {
  const mine = choice(panel);
  return panel.views.find((view) => view.id === mine.view);
}

function shownCurves(panel) {
  const mine = choice(panel);
  return viewOf(panel).curves.filter((curve) => !mine.hidden.has(curve.label));
}

/** An element with attributes, listeners (on…) and children; texts are never read as HTML. */
function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** A text as plotly may show it: it reads some HTML in labels and hovers. */
function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

/** Three significant digits, or whole from 100 on; thousands apart. */
function told(number) {
  if (number === null || number === undefined) return "";
  const size = Math.abs(number);
  if (size >= 100) return Math.round(number).toLocaleString("en-US");
  if (size !== 0 && size < 1e-3) return number.toExponential(2);
  return String(Number(number.toPrecision(3)));
}

/** Steps as they are known: whole ones in full. */
function whole(number) {
  return Number.isInteger(number) ? number.toLocaleString("en-US") : told(number);
}

/** A number and its noun: 1 step, 2,304 steps. */
function counted(number, noun, tell = whole) {
  return tell(number) + " " + noun + (number === 1 ? "" : "s");
}

/** What the examples of these curves are called; of several kinds, examples. */
function examplesOf(curves) {
  const named = new Set(curves.map((curve) => curve.units));
  return named.size === 1 ? [...named][0] : "examples";
}

/** A number on a log2 axis: 512, 65,536, 1/8. */
function onAxis(value) {
  if (value >= 1) return value >= 10000 ? value.toLocaleString("en-US") : String(value);
  return 1 / value <= 2048 ? "1/" + 1 / value : value.toExponential(0);
}

/** Powers of two from low to high, at most `most` of them, as plotly's ticks. */
function ticks2(low, high, most) {
  const first = Math.ceil(Math.log2(low) - 1e-9);
  const last = Math.floor(Math.log2(high) + 1e-9);
  const every = Math.max(1, Math.ceil((last - first + 1) / most));
  const values = [];
  for (let i = Math.ceil(first / every) * every; i <= last; i += every) values.push(2 ** i);
  return { tickmode: "array", tickvals: values, ticktext: values.map(onAxis) };
}

/** Powers of ten likewise. */
function ticks10(low, high) {
  const values = [];
  for (let i = Math.ceil(Math.log10(low) - 1e-9); 10 ** i <= high * 1.000001; i++) values.push(10 ** i);
  const text = values.map((value) => String(Number(value.toPrecision(1))));
  return values.length > 1 ? { tickmode: "array", tickvals: values, ticktext: text } : {};
}

/** Fitted steps to target at a batch size: S = S_min (1 + (B_crit / B)^(a k))^(1 / k). */
function fitted(fit, size) {
  return fit.min_steps * (1 + (fit.critical_batch_size / size) ** (fit.a * fit.k)) ** (1 / fit.k);
}

/** Batch sizes evenly in log over the range that was fitted. */
function spread(low, high, count) {
  const found = [];
  for (let i = 0; i < count; i++) found.push(low * (high / low) ** (i / (count - 1)));
  return found;
}

function isDark() {
  if (chosen.printing || window.matchMedia("print").matches) return false;
  if (chosen.theme !== "auto") return chosen.theme === "dark";
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

/** The page's colours, for charts. */
function ink() {
  return isDark()
    ? { paper: "#14181b", ink: "#e7eaec", soft: "#a3adb5", grid: "#293036", line: "#4a545b", raised: "#1c2125" }
    : { paper: "#ffffff", ink: "#1d2227", soft: "#59636b", grid: "#e9ecee", line: "#b9c0c4", raised: "#ffffff" };
}

/** How a curve looks: colour by the theme; from the eighth on colours come again with other marks. */
function look(curve) {
  const all = data.looks;
  const i = curve.look;
  const own = all[i % all.length];
  const other = all[(i + Math.floor(i / all.length)) % all.length];
  return { colour: isDark() ? own.dark : own.light, marker: other.marker, dash: other.dash };
}

/** `colour` on the paper, so much of it. */
function tint(colour, share) {
  const paper = ink().paper;
  const part = (text, at) => parseInt(text.slice(at, at + 2), 16);
  const mixed = [1, 3, 5].map((at) => Math.round(share * part(colour, at) + (1 - share) * part(paper, at)));
  return "#" + mixed.map((value) => value.toString(16).padStart(2, "0")).join("");
}

const FONT = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif";

/** What every chart's layout begins with. */
function layout(width, height, more) {
  const colours = ink();
  return Object.assign(
    {
      width,
      height,
      autosize: false,
      margin: { l: width < 520 ? 48 : 62, r: 10, t: 12, b: 46 },
      paper_bgcolor: colours.paper,
      plot_bgcolor: colours.paper,
      font: { family: FONT, size: 12, color: colours.soft },
      hovermode: "closest",
      hoverlabel: { align: "left", bgcolor: colours.raised, bordercolor: colours.line, font: { family: FONT, color: colours.ink, size: 12 } },
      showlegend: false,
      dragmode: width < 520 ? false : "zoom",
      modebar: { color: colours.line, activecolor: colours.ink, bgcolor: "rgba(0,0,0,0)" },
    },
    more,
  );
}

/** An axis: thin lines, a title. */
function axis(title, more) {
  const colours = ink();
  return Object.assign(
    {
      title: { text: title, standoff: 8, font: { color: colours.ink, size: 12.5 } },
      gridcolor: colours.grid,
      showline: false,
      zeroline: false,
      ticks: "",
      tickfont: { color: colours.soft },
    },
    more,
  );
}
