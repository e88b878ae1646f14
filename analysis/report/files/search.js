// The charts of the search: best learning rates, the expected best of fewer trials, every trial.

const FATES = ["reached", "not reached", "dominated", "infeasible"];
const ENOUGH = 1.05;

/** The best learning rate against batch size with the two rules. */
function ratesFigure(panel, width) {
  const curves = shownCurves(panel).filter((curve) => curve.search && curve.points.rate);
  const traces = [];
  const values = [];
  const sizes = [];
  for (const curve of curves) {
    const one = look(curve);
    const rows = rowsOf(curve).filter((row) => row.rate);
    if (!rows.length) continue;
    const x = rows.map((row) => row.batch_size);
    sizes.push(...x);
    rows.forEach((row) => values.push(row.rates_low, row.rates_high));
    if (curves.length <= 3) {
      const ends = [x[0], x[x.length - 1]];
      curve.search.rules.forEach((rule, i) => {
        const y = ends.map((size) => rule * size ** (i === 0 ? 1 : 0.5));
        traces.push({
          name: curve.label, meta: i === 0 ? "linear" : "square-root", x: ends, y, mode: "lines", hoverinfo: "skip",
          line: { color: tint(one.colour, 0.6), width: 1.1, dash: i === 0 ? "6px,4px" : "1.5px,3px" },
        });
      });
    }
    traces.push({
      name: curve.label, meta: "rates", mode: "markers", x, y: rows.map((row) => row.rate),
      error_y: {
        type: "data", symmetric: false, width: 0, thickness: 1.2, color: tint(one.colour, 0.6),
        array: rows.map((row) => row.rates_high - row.rate), arrayminus: rows.map((row) => row.rate - row.rates_low),
      },
      marker: { symbol: one.marker, size: 8, color: one.colour, line: { width: 1, color: ink().paper } },
      customdata: rows.map((row) => [hover(curve, row), curve.label, row.batch_size]),
      hovertemplate: "%{customdata[0]}<extra></extra>",
    });
    const edged = rows.filter((row) => (row.edges || "").split("; ").some((text) => text.startsWith("learning_rate ")));
    if (edged.length) {
      traces.push({
        name: curve.label, meta: "edges", mode: "markers", hoverinfo: "skip", x: edged.map((row) => row.batch_size), y: edged.map((row) => row.rate),
        marker: { symbol: "circle-open", size: 15, line: { width: 1.2 }, color: edged.map((row) => (row.on_edge ? ink().ink : ink().line)) },
      });
    }
  }
  const divided = curves.some((curve) => curve.search.divided);
  if (!values.length) return null;
  const range = [Math.min(...values) / 1.8, Math.max(...values) * 1.8];
  const across = [Math.min(...sizes) / 1.5, Math.max(...sizes) * 1.5];
  return {
    data: traces,
    layout: layout(width, 300, {
      xaxis: axis("batch size", { type: "log", range: across.map(Math.log10), ...ticks2(across[0], across[1], width < 400 ? 6 : 8) }),
      yaxis: axis(divided ? "effective learning rate" : "learning rate", { type: "log", range: range.map(Math.log10), ...ticks10(range[0], range[1]) }),
      uirevision: panel.id,
    }),
  };
}

/** A value between the knots of a line; null outside. */
function between(xs, ys, x) {
  if (x < xs[0] || x > xs[xs.length - 1]) return null;
  let i = 1;
  while (i < xs.length - 1 && xs[i] < x) i++;
  const share = xs[i] === xs[i - 1] ? 0 : (x - xs[i - 1]) / (xs[i] - xs[i - 1]);
  return ys[i - 1] + share * (ys[i] - ys[i - 1]);
}

/** The expected best of n trials over the best of N: each batch size, and their geometric mean. */
function budgetFigure(panel, width) {
  const curves = shownCurves(panel).filter((curve) => curve.search && curve.search.budgets.length);
  if (!curves.length) return null;
  const traces = [];
  let most = 0;
  let least = Infinity;
  let top = ENOUGH;
  for (const curve of curves) {
    const one = look(curve);
    const all = curve.search.budgets;
    for (const each of all) {
      most = Math.max(most, each.n[each.n.length - 1]);
      least = Math.min(least, each.n[0]);
      top = Math.max(top, Math.min(1.5, each.ratio[0]));
      traces.push({
        name: curve.label, meta: "budget", mode: "lines", x: each.n, y: each.ratio, line: { color: tint(one.colour, 0.32), width: 1 },
        hovertemplate: "<b>" + plain(name(curve, each.batch_size)) + "</b><br>best of %{x:.0f}: %{y:.3f} times the best of all<extra></extra>",
      });
    }
    const first = Math.max(...all.map((each) => each.n[0]));
    const last = Math.min(...all.map((each) => each.n[each.n.length - 1]));
    if (all.length > 1 && last > first) {
      const x = [];
      for (let i = 0; i <= 40; i++) x.push(first + ((last - first) * i) / 40);
      const y = x.map((n) => Math.exp(all.reduce((sum, each) => sum + Math.log(between(each.n, each.ratio, n)), 0) / all.length));
      traces.push({
        name: curve.label, meta: "mean", mode: "lines", x, y, line: { color: one.colour, width: 2.6, dash: one.dash },
        hovertemplate: "<b>" + plain(curve.label) + "</b>, mean of batch sizes<br>best of %{x:.0f}: %{y:.3f} times the best of all<extra></extra>",
      });
    }
  }
  traces.sort((a, b) => (a.meta === "mean") - (b.meta === "mean"));
  const colours = ink();
  const line = (more) => ({ type: "line", line: { color: colours.soft, width: 1, ...more.line }, ...more.at });
  return {
    data: traces,
    layout: layout(width, 300, {
      xaxis: axis("trials n", { range: [Math.min(least, most / 2) - 0.02 * most, most * 1.02] }),
      yaxis: axis("best of n / best of N", { range: [1 - 0.03 * (top - 1), 1 + 1.1 * (top - 1)] }),
      shapes: [
        line({ line: { dash: "5px,3px" }, at: { xref: "paper", x0: 0, x1: 1, y0: ENOUGH, y1: ENOUGH } }),
        line({ line: {}, at: { yref: "paper", y0: 0, y1: 1, x0: most / 2, x1: most / 2 } }),
      ],
      annotations: [{ text: "half of N", x: most / 2, y: 1, yref: "paper", yanchor: "top", xanchor: "left", showarrow: false, font: { size: 11, color: colours.soft }, xshift: 4 }],
      uirevision: panel.id,
    }),
  };
}

/** The curve and batch size whose trials are shown; the middle batch size at first. */
function triedOf(panel) {
  const mine = choice(panel).tried;
  const curves = viewOf(panel).curves.filter((curve) => curve.search && curve.search.tried.length);
  if (!curves.length) return null;
  const curve = curves.find((each) => each.label === mine.curve) || curves[0];
  const all = curve.search.tried;
  const found = all.find((each) => each.batch_size === mine.size) || all[Math.floor((all.length - 1) / 2)];
  return { curves, curve, all, found };
}

/** Every trial of one search: its learning rate, and its steps or what else became of it. */
function triedFigure(panel, width) {
  const some = triedOf(panel);
  if (!some) return null;
  const { curve, found } = some;
  const one = look(curve);
  const colours = ink();
  const momenta = found.momentum || [];
  const rate = (i) => (momenta[i] === null || momenta[i] === undefined || momenta[i] >= 1 ? found.rate[i] : found.rate[i] / (1 - momenta[i]));
  const x = found.rate.map((_, i) => rate(i));
  const hits = found.became.map((fate, i) => (fate === 0 ? i : -1)).filter((i) => i >= 0);
  const best = Math.min(...hits.map((i) => found.steps[i]));
  const text = (i) =>
    "<b>" + (found.steps[i] === null ? FATES[found.became[i]] : counted(found.steps[i], "step")) + "</b><br>learning rate " + told(found.rate[i]) +
    (momenta[i] === null || momenta[i] === undefined ? "" : ", momentum " + told(momenta[i])) + (found.trial[i] ? "<br>trial " + plain(found.trial[i]) : "");
  const others = [3, 2, 1].filter((fate) => found.became.includes(fate));
  const share = others.length ? 0.1 + 0.075 * others.length : 0;
  const styles = {
    1: { symbol: "circle-open", color: one.colour, size: 7 }, 2: { symbol: "circle", color: colours.soft, size: 5 },
    3: { symbol: "x-thin-open", color: isDark() ? "#f08a3c" : "#d55e00", size: 7 },
  };
  const traces = others.map((fate, row) => {
    const places = found.became.map((each, i) => (each === fate ? i : -1)).filter((i) => i >= 0);
    return {
      meta: FATES[fate], mode: "markers", yaxis: "y2", x: places.map(rate), y: places.map(() => row),
      marker: { ...styles[fate], opacity: 0.8, line: { width: 1.3, color: styles[fate].color } }, customdata: places.map(text), hovertemplate: "%{customdata}<extra></extra>",
    };
  });
  traces.push({
    meta: "reached", mode: "markers", x: hits.map(rate), y: hits.map((i) => found.steps[i]),
    marker: { symbol: one.marker, opacity: 1, size: hits.map((i) => (found.steps[i] === best ? 12 : 8)), color: one.colour, line: { width: 1, color: colours.paper } },
    customdata: hits.map(text), hovertemplate: "%{customdata}<extra></extra>",
  });
  const range = [Math.min(...x) / 1.4, Math.max(...x) * 1.4];
  const steps = hits.map((i) => found.steps[i]);
  const up = steps.length ? [Math.min(...steps) / 1.25, Math.max(...steps) * 1.25] : [1, 10];
  return {
    data: traces,
    layout: layout(width, 320, {
      margin: { l: 84, r: 10, t: 12, b: 46 },
      xaxis: axis(momenta.some((m) => m !== null && m !== undefined) ? "effective learning rate" : "learning rate", { type: "log", range: range.map(Math.log10), anchor: "y", ...ticks10(range[0], range[1]) }),
      yaxis: axis("steps to target", { type: "log", range: up.map(Math.log10), domain: [0, 1 - share], ...stepTicks(up) }),
      ...(others.length
        ? { yaxis2: axis("", { domain: [1 - share + 0.05, 1], range: [-0.6, others.length - 0.4], tickmode: "array", tickvals: others.map((_, i) => i), ticktext: others.map((fate) => FATES[fate]), fixedrange: true, anchor: "x" }) }
        : {}),
      uirevision: panel.id + curve.label + found.batch_size,
    }),
  };
}

/** Powers of two where there are several, else a few plain numbers. */
function stepTicks(range) {
  const powers = ticks2(range[0], range[1], 7);
  if (powers.tickvals.length > 1) return powers;
  const values = spread(range[0], range[1], 5).slice(1, 4).map((value) => Number(value.toPrecision(2)));
  return { tickmode: "array", tickvals: values, ticktext: values.map(told) };
}
