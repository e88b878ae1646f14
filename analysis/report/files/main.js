// When what is drawn: charts as they come near the screen, again when something changes.

const FIGURES = { steps: stepsFigure, rates: ratesFigure, budget: budgetFigure, tried: triedFigure, training: trainingFigure };
const PAPER = 660;
let near = null;
let folded = [];

/** Run the charting library, once. It is large: texts, tables and controls do not wait for it. */
function library() {
  const kept = document.getElementById("plotly");
  if (window.Plotly || !kept) return;
  document.head.append(element("script", {}, kept.textContent));
  kept.remove();
}

/** After what is on the screen now has been painted, and the picture of a chart with it. */
async function painted(node) {
  const picture = node.querySelector("img");
  if (picture) await picture.decode().catch(() => null);
  await new Promise((shown) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      channel.port1.close();
      shown();
    };
    window.requestAnimationFrame(() => channel.port2.postMessage(null));
  });
}

/** Draw a chart, or say that there is nothing to draw. */
function draw(node) {
  const panel = panelOf(node.dataset.of);
  if (!panel) return;
  const width = chosen.printing ? printed(node) : Math.floor(node.clientWidth);
  if (width < 50) return;
  const figure = FIGURES[node.dataset.chart](panel, width);
  if (!figure) {
    if (node.dataset.drawn) window.Plotly.purge(node);
    node.replaceChildren(element("p", { class: "quiet" }, "Nothing to draw of the curves that are shown."));
    delete node.dataset.drawn;
    return;
  }
  library();
  if (!node.dataset.drawn) node.replaceChildren();
  const config = {
    // Nothing of this page goes anywhere: the library would offer to send charts to its makers.
    showSendToCloud: false, plotlyServerURL: "", displaylogo: false, responsive: false, scrollZoom: false, displayModeBar: width < 520 ? false : "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], toImageButtonOptions: { format: "svg", filename: node.id },
  };
  window.Plotly.react(node, figure.data, figure.layout, config);
  node.style.minHeight = figure.layout.height + "px";
  if (!node.dataset.drawn) {
    node.dataset.drawn = "yes";
    node.on("plotly_click", (event) => {
      const told = event.points[0] && event.points[0].customdata;
      if (Array.isArray(told) && told.length === 3) showTrial(panelOf(node.dataset.of), told[1], told[2]);
    });
  }
  if (node.dataset.chart === "steps") {
    const key = document.querySelector(`[data-key="${panel.id}"]`);
    if (key) key.replaceChildren(...keyOf(panel, figure).map((text) => element("span", {}, text)));
  }
}

/** A chart's width on paper: half of it for those that stand two in a row. */
function printed(node) {
  return node.closest(".grid") && !node.closest(".wide") ? Math.floor(PAPER / 2 - 16) : PAPER;
}

function redraw(id) {
  const node = document.getElementById(id);
  if (node && node.dataset.drawn) draw(node);
  else if (node && node.dataset.near) draw(node);
}

function redrawAll(every) {
  for (const node of document.querySelectorAll(".chart")) {
    if (every || node.dataset.drawn || node.dataset.near) draw(node);
  }
}

/** After a choice in a panel: its controls, its texts at the chosen target, its charts. */
function renewPanel(panel) {
  const mine = choice(panel);
  const focus = document.activeElement ? document.activeElement.id : null;
  for (const node of document.querySelectorAll(`[data-view][data-panel="${panel.id}"]`)) {
    node.hidden = node.dataset.view !== mine.view;
  }
  buildControls(panel);
  buildTried(panel);
  for (const kind of Object.keys(FIGURES)) redraw(`${panel.id}-${kind}`);
  focusOn(focus);
}

function renewAll() {
  if (!data) return;
  for (const panel of data.panels) renewPanel(panel);
}

/** Make all that the texts have places for. */
function build() {
  if (!data) return;
  buildTables(document.getElementById("main"));
  if (near) near.disconnect();
  near = new IntersectionObserver(
    (seen) => {
      for (const each of seen) {
        if (!each.isIntersecting) continue;
        near.unobserve(each.target);
        each.target.dataset.near = "yes";
        painted(each.target).then(() => draw(each.target));
      }
    },
    { rootMargin: "300px" },
  );
  document.querySelectorAll(".chart").forEach((node) => near.observe(node));
  renewAll();
}

/** On paper nothing is folded, and charts are light, of the paper's width, and all of them there. */
function print(starts) {
  if (starts && chosen.printing) return;
  chosen.printing = starts;
  if (starts) folded = document.querySelectorAll("details:not([open])");
  for (const node of folded) node.open = starts;
  if (!starts) folded = [];
  redrawAll(starts);
}

function start() {
  buildTools();
  build();
  let wait = null;
  let wide = window.innerWidth;
  window.addEventListener("resize", () => {
    window.clearTimeout(wait);
    wait = window.setTimeout(() => {
      // On a phone the height changes as one scrolls: only another width asks for another chart.
      if (window.innerWidth !== wide && !chosen.printing) redrawAll(false);
      wide = window.innerWidth;
    }, 120);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", renewAll);
  window.matchMedia("print").addEventListener("change", (event) => print(event.matches));
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  // Ahead of the first chart that is scrolled to, once nothing else is to be done.
  window.addEventListener("load", () => painted(document.body).then(() => window.requestIdleCallback && window.requestIdleCallback(library)));
  const address = embedded("live");
  if (address) ask(address);
}

start();
