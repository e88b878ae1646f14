// The main chart: steps (or examples) to target against batch size, and the regimes beneath it.

const SHADES = [0.5, 0.24, 0.08];
const REGIMES = ["perfect scaling", "diminishing returns", "maximal parallelism"];
const BRIEF = ["perfect", "diminishing", "maximal"];
const ROW = 24;

/** The rows of a curve's points, as objects. */
function rowsOf(curve) {
  const columns = curve.points;
  return columns.batch_size.map((size, i) => {
    const row = {};
    for (const name of Object.keys(columns)) row[name] = columns[name][i];
    return row;
  });
}

/** What one step at a batch size counts on the chosen y axis: 1, or the batch size. */
function weight(mine, size) {
  return mine.y === "examples" ? size : 1;
}

/** Examples of a point's first steps: those of every phase where the batch size grew. */
function examplesOfPoint(row, steps) {
  if (!row.phases) return steps * row.batch_size;
  const [starts, sizes] = row.phases;
  return sizes.reduce((sum, size, i) => sum + size * Math.max(0, Math.min(i + 1 < starts.length ? starts[i + 1] : steps, steps) - starts[i]), 0);
}

/** Steps of a point on the chosen y axis: they, or their examples. */
function valueOf(mine, row, steps) {
  return mine.y === "examples" ? examplesOfPoint(row, steps) : steps;
}

/** What a curve's values are divided by; null where there is nothing to divide by. */
function divisor(curve, mine) {
  if (mine.relative === "none") return 1;
  const reached = rowsOf(curve).filter((row) => row.steps !== null && row.steps !== undefined);
  if (mine.relative === "size") {
    const here = reached.find((row) => row.batch_size === mine.base);
    if (here) return valueOf(mine, here, here.steps);
    const fit = curve.fit;
    if (!fit || (curve.grows && mine.y === "examples") || mine.base < fit.over[0] || mine.base > fit.over[1]) return null;
    return fitted(fit, mine.base) * weight(mine, mine.base);
  }
  const least = curve.regimes && curve.regimes[mine.y === "examples" ? "min_examples" : "min_steps"].value;
  if (least) return least;
  const values = reached.map((row) => valueOf(mine, row, row.steps));
  return values.length ? Math.min(...values) : null;
}

function yTitle(mine, curves) {
  const relative = curves.some((curve) => curve.relative) ? ", relative" : "";
  const what = (mine.y === "examples" ? examplesOf(curves) : "steps") + " to target" + relative;
  if (mine.relative === "size") return what + ", over those at batch size " + whole(mine.base);
  if (mine.relative === "least") return what + ", over the least";
  return what;
}

/** The trial behind a point, a line each. */
function behind(curve, row) {
  const lines = [];
  const run = curve.estimator === "run";
  if (row.steps === null || row.steps === undefined) {
    lines.push("the target was not reached");
  } else {
    const miss = row.last_miss;
    const bracket = miss !== null && miss !== undefined ? ", missed still at " + whole(miss) : "";
    lines.push(counted(row.steps, "step") + (run && row.trials > 1 ? ", the median" : " to target") + bracket);
    lines.push(whole(examplesOfPoint(row, row.steps)) + " " + curve.units);
    if (row.low !== null && row.low !== undefined && row.low !== row.high) {
      lines.push((run ? "runs from " : "error bar ") + told(row.low) + " to " + (row.high === null || row.high === undefined ? "unknown" : told(row.high)));
    }
  }
  if (row.best) lines.push(row.best);
  if (run) {
    lines.push(counted(row.trials, "run"));
  } else {
    lines.push("N = " + whole(row.trials) + ", " + Math.round((100 * row.infeasible) / Math.max(row.ran, 1)) + " % of " + whole(row.ran) + " infeasible");
  }
  if (row.repeats_median) lines.push("trained again " + counted(row.repeats, "time") + ": median " + told(row.repeats_median));
  if (row.edges) lines.push("on the edge: " + row.edges);
  if (row.trial) lines.push("trial " + row.trial);
  return lines;
}

function name(curve, size) {
  return curve.label + ", batch size " + whole(size);
}

function hover(curve, row) {
  return "<b>" + plain(name(curve, row.batch_size)) + "</b><br>" + behind(curve, row).map(plain).join("<br>");
}

/** The metric of the trial behind a pressed point, evaluation by evaluation, and its target. */
function trainingFigure(panel, width) {
  const trained = choice(panel).trained;
  if (!trained) return null;
  const { best, curve } = trained;
  const goal = Number((viewOf(panel).target || "").split(/[<>]/)[1]);
  const colours = ink();
  const shapes = Number.isFinite(goal)
    ? [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: goal, y1: goal, line: { color: colours.soft, width: 1, dash: "4px,3px" } }]
    : [];
  return {
    data: [{
      x: best.steps, y: best.values, mode: "lines+markers", line: { color: look(curve).colour, width: 1.5 }, marker: { size: 4 },
      hovertemplate: "step %{x}: %{y}<extra></extra>",
    }],
    layout: layout(width, 240, { xaxis: axis("step", { rangemode: "tozero" }), yaxis: axis(best.metric.replace(/_/g, " "), {}), shapes }),
  };
}

/** The traces of one curve in the upper part. */
function curveTraces(curve, mine, divided) {
  const one = look(curve);
  const rows = rowsOf(curve).filter((row) => row.steps !== null && row.steps !== undefined);
  const scale = (row, steps) => valueOf(mine, row, steps) / divided;
  const traces = [];
  if (curve.fit && !(curve.grows && mine.y === "examples")) {
    const [low, high] = curve.fit.over;
    const x = spread(low, high, 96);
    const y = x.map((size) => (fitted(curve.fit, size) * weight(mine, size)) / divided);
    if (curve.fit.perfect) {
      const least = fitted(curve.fit, high);
      const end = Math.min(high, curve.fit.perfect / (0.55 * least));
      const ends = [low, end];
      traces.push({
        name: curve.label, meta: "perfect", x: ends, y: ends.map((size) => ((curve.fit.perfect / size) * weight(mine, size)) / divided),
        mode: "lines", line: { color: tint(one.colour, 0.75), width: 1, dash: "5px,4px" }, hoverinfo: "skip",
      });
    }
    traces.push({ name: curve.label, meta: "fit", x, y, mode: "lines", line: { color: one.colour, width: 2, dash: one.dash }, hoverinfo: "skip" });
  }
  const up = (row) => (row.high === null || row.high === undefined ? row.steps * 1.25 : row.high);
  const barred = (row) => row.low !== null && row.low !== undefined;
  traces.push({
    name: curve.label, meta: "points", mode: "markers",
    x: rows.map((row) => row.batch_size), y: rows.map((row) => scale(row, row.steps)),
    error_y: {
      type: "data", symmetric: false, thickness: 1.3, width: 0, color: tint(one.colour, 0.6),
      array: rows.map((row) => (barred(row) ? scale(row, up(row)) - scale(row, row.steps) : 0)),
      arrayminus: rows.map((row) => (barred(row) ? scale(row, row.steps) - scale(row, row.low) : 0)),
    },
    marker: {
      symbol: one.marker, size: 8.5,
      color: rows.map(() => one.colour),
      line: { width: 1, color: ink().paper },
    },
    customdata: rows.map((row) => [hover(curve, row), curve.label, row.batch_size]),
    hovertemplate: "%{customdata[0]}<extra></extra>",
  });
  const open = rows.filter((row) => barred(row) && (row.high === null || row.high === undefined));
  if (open.length) {
    traces.push({
      name: curve.label, meta: "open", mode: "markers", hoverinfo: "skip",
      x: open.map((row) => row.batch_size), y: open.map((row) => scale(row, up(row))),
      marker: { symbol: "triangle-up", size: 6, color: tint(one.colour, 0.6) },
    });
  }
  const edged = rows.filter((row) => row.edges);
  if (edged.length) {
    traces.push({
      name: curve.label, meta: "edges", mode: "markers", hoverinfo: "skip",
      x: edged.map((row) => row.batch_size), y: edged.map((row) => scale(row, row.steps)),
      marker: { symbol: "circle-open", size: 16, line: { width: 1.2 }, color: edged.map((row) => (row.on_edge ? ink().ink : ink().line)) },
    });
  }
  return traces;
}

/** Open marks above everything where a curve's target was not reached. */
function censoredTrace(curve, top) {
  const one = look(curve);
  const rows = rowsOf(curve).filter((row) => row.steps === null || row.steps === undefined);
  if (!rows.length) return [];
  return [{
    name: curve.label, meta: "censored", mode: "markers+text", x: rows.map((row) => row.batch_size), y: rows.map(() => top),
    text: rows.map(() => "↑"), textposition: "top center", textfont: { color: one.colour, size: 13 },
    marker: { symbol: one.marker + "-open", size: 8, color: one.colour, line: { width: 1.5 } },
    customdata: rows.map((row) => [hover(curve, row), curve.label, row.batch_size]),
    hovertemplate: "%{customdata[0]}<extra></extra>",
  }];
}

/** A published curve beside them: thin, open marks. */
function overlayTraces(panel, mine) {
  const i = Number(mine.overlay);
  const other = mine.overlay === "" ? null : data.published[i];
  if (!other) return [];
  const asCurve = { points: { batch_size: other.batch_size, steps: other.steps }, fit: null, regimes: null };
  const divided = divisor(asCurve, mine);
  if (divided === null) return [];
  const colour = ink().soft;
  const scaled = (steps, at) => (steps * weight(mine, other.batch_size[at])) / divided;
  const text = plain(other.label);
  return [{
    name: other.label, meta: "published", mode: "lines+markers", x: other.batch_size, y: other.steps.map(scaled),
    line: { color: colour, width: 1, dash: "2px,3px" }, marker: { symbol: "hexagon-open", size: 8, color: colour, line: { width: 1.3 } },
    customdata: other.steps.map((steps, at) => ["<b>published: " + text + "</b><br>batch size " + whole(other.batch_size[at]) + "<br>" + counted(steps, "step", told) + (other.target ? "<br>to " + plain(other.target) : "")]),
    hovertemplate: "%{customdata[0]}<extra></extra>",
  }];
}

/** An interval's line on a strip; an open end runs to the edge of what was tested, with an arrow. */
function whisker(found, over, row, colour, width, meta) {
  if (!found || (found.low === null && found.high === null)) return [];
  const low = found.low === null ? over[0] : found.low;
  const high = found.high === null ? over[1] : found.high;
  const symbols = [found.low === null ? "triangle-left" : "line-ns-open", found.high === null ? "triangle-right" : "line-ns-open"];
  return [{
    meta, mode: "lines+markers", x: [low, high], y: [row, row], xaxis: "x", yaxis: "y2", hoverinfo: "skip",
    line: { color: colour, width }, marker: { symbol: symbols, size: symbols.map((symbol) => (symbol === "line-ns-open" ? 7 : 5)), color: colour, line: { width: width * 0.8, color: colour } },
  }];
}

/** The regimes of each curve as a strip, hatched where merely bounded. */
function stripTraces(curves) {
  const traces = [];
  curves.forEach((curve, i) => {
    const row = curves.length - 1 - i;
    if (!curve.fit) return;
    const one = look(curve);
    for (const [regime, low, high, sure] of curve.regime_spans) {
      traces.push({
        meta: "strips", name: curve.label, type: "bar", orientation: "h", xaxis: "x", yaxis: "y2", width: 0.82, y: [row], base: [low], x: [high - low],
        marker: {
          // A bounded regime is striped over what lies there else, diminishing returns.
          color: tint(one.colour, SHADES[sure ? regime : 1]), line: { width: 0 },
          pattern: { shape: sure ? "" : "/", fillmode: "overlay", fgcolor: regime ? ink().paper : tint(one.colour, 0.7), fgopacity: 1, size: 7, solidity: 0.3 },
        },
        hovertemplate: "<b>" + plain(curve.label) + "</b><br>" + REGIMES[regime] + (sure ? "" : ", merely bounded") + "<extra></extra>",
      });
    }
    const over = curve.fit.over;
    const colours = ink();
    traces.push(...whisker(curve.regimes.perfect_scaling_until, over, row + 0.23, colours.ink, 1, "perfect-end"));
    traces.push(...whisker(curve.regimes.maximal_parallelism_from, over, row - 0.23, colours.ink, 1, "maximal-end"));
    const critical = curve.regimes.critical_batch_size;
    traces.push(...whisker(critical, over, row, one.colour, 2, "critical"));
    if (critical.value !== null) {
      const ends = critical.low !== null && critical.high !== null ? " [" + told(critical.low) + ", " + told(critical.high) + "]" : "";
      traces.push({
        meta: "critical-value", name: curve.label, mode: "markers", x: [critical.value], y: [row], xaxis: "x", yaxis: "y2",
        marker: { symbol: one.marker, size: 9, color: one.colour, line: { width: 1.2, color: colours.paper } },
        hovertemplate: "<b>" + plain(curve.label) + "</b><br>critical batch size " + told(critical.value) + ends + "<extra></extra>",
      });
    }
  });
  return traces;
}

/** Names over the uppermost strip, where they have room. */
function stripNames(curves, range, width, top) {
  const first = curves.findIndex((curve) => curve.fit);
  if (first < 0) return [];
  const across = Math.log2(range[1] / range[0]);
  const spans = curves[first].regime_spans;
  const once = spans.filter((span) => span === spans.find((other) => other[0] === span[0]));
  return once.flatMap(([regime, low, high]) => {
    const room = (width * Math.log2(high / low)) / across;
    const fits = [REGIMES[regime], BRIEF[regime]].find((text) => text.length * 6 < room);
    const at = Math.log10(Math.sqrt(low * high));
    return fits && first === 0
      ? [{ text: fits, x: at, y: top, xref: "x", yref: "y2", showarrow: false, yanchor: "bottom", font: { size: 10.5, color: ink().soft } }]
      : [];
  });
}

/** Data and layout of the main chart of a panel. */
function stepsFigure(panel, width) {
  const mine = choice(panel);
  const curves = shownCurves(panel);
  const narrow = width < 520;
  const drawn = curves.map((curve) => ({ curve, divided: divisor(curve, mine) })).filter((each) => each.divided !== null);
  const traces = drawn.flatMap((each) => curveTraces(each.curve, mine, each.divided));
  traces.unshift(...overlayTraces(panel, mine));
  const values = traces.flatMap((trace) => (trace.meta === "points" || trace.meta === "published" || trace.meta === "open" ? trace.y : []));
  for (const trace of traces) {
    if (trace.error_y) trace.y.forEach((y, i) => values.push(y + trace.error_y.array[i], y - trace.error_y.arrayminus[i]));
  }
  const low = Math.min(...values.filter((value) => value > 0), Infinity);
  const high = Math.max(...values, -Infinity);
  const some = low < Infinity;
  const top = (some ? high : 1) * 1.6;
  const above = drawn.flatMap((each) => censoredTrace(each.curve, top));
  traces.push(...above);
  const sizes = [...curves.flatMap((curve) => curve.points.batch_size), ...traces.flatMap((trace) => (trace.meta === "published" ? trace.x : []))];
  const range = sizes.length ? [Math.min(...sizes) / 1.5, Math.max(...sizes) * 1.5] : [1, 1024];
  const yRange = some ? [low / 1.5, above.length ? top * 1.9 : high * 1.4] : [1, 1024];
  const rows = curves.filter((curve) => curve.fit).length ? curves.length : 0;
  const strips = rows ? stripTraces(curves) : [];
  const upper = Math.round(Math.min(400, Math.max(290, width * 0.62)));
  const height = upper + rows * ROW + (rows ? 34 : 0) + 58;
  const inner = height - 58;
  const share = rows ? (rows * ROW + 20) / inner : 0;
  const cut = narrow ? 8 : 18;
  const longest = Math.max(...curves.map((curve) => Math.min(curve.label.length, cut)), 5);
  const left = Math.max(narrow ? 50 : 62, rows ? longest * 7.1 + 16 : 0);
  return {
    data: [...traces, ...strips],
    layout: layout(width, height, {
      margin: { l: left, r: 10, t: 12, b: 46 },
      barmode: "overlay",
      xaxis: axis("batch size (" + examplesOf(curves) + ")", {
        type: "log", range: range.map(Math.log10), anchor: rows ? "y2" : "y",
        ...ticks2(Math.min(...sizes, 1e9), Math.max(...sizes, 1), narrow ? 6 : 12),
      }),
      yaxis: axis(yTitle(mine, curves), { type: "log", range: yRange.map(Math.log10), domain: [rows ? share + 14 / inner : 0, 1], ...ticks2(yRange[0], yRange[1], 9) }),
      ...(rows
        ? {
            yaxis2: axis("", {
              domain: [0, share], range: [-0.55, rows - 0.45 + 0.75], showgrid: false, fixedrange: true,
              tickmode: "array", tickvals: curves.map((_, i) => rows - 1 - i),
              ticktext: curves.map((curve) => plain(curve.label.length > cut ? curve.label.slice(0, cut - 1) + "…" : curve.label)),
            }),
            annotations: stripNames(curves, range, width - left - 10, rows - 0.55),
          }
        : {}),
      uirevision: panel.id + mine.y + mine.relative + mine.base + mine.view + mine.overlay,
    }),
  };
}

/** The marks that are there, in words. */
function keyOf(panel, figure) {
  const curves = shownCurves(panel);
  const there = (meta) => figure.data.some((trace) => trace.meta === meta);
  const words = [];
  if (there("fit")) words.push("lines: fitted knees");
  if (there("perfect")) words.push("dashed: perfect scaling");
  if (there("points") && figure.data.some((trace) => trace.error_y && trace.error_y.array.some((x) => x > 0))) words.push("bars: error of a point");
  if (there("critical-value")) words.push("mark on a strip: critical batch size, its interval; thin: ends of regimes");
  if (curves.some((curve) => curve.regime_spans.some((each) => !each[3]))) words.push("hatched: bounded, not reached");
  if (there("edges")) words.push("ring: optimum on the edge of its search space (pale: a near-best one)");
  if (there("censored")) words.push("↑: target not reached");
  if (there("published")) words.push("open hexagons: published");
  else if (choice(panel).overlay !== "") words.push("the published curve has no value to divide by at this batch size, and is not drawn");
  const lost = curves.length - new Set(figure.data.filter((trace) => trace.meta === "points").map((trace) => trace.name)).size;
  if (lost > 0) words.push(counted(lost, "curve") + " not drawn: no value to divide by");
  return words;
}
