// Small charts of the last five minutes, drawn as SVG paths. One pointer position is shared by all charts of a group.

import { h, svg, setText, setAttribute } from "./dom.js";
import { GAP_MS } from "./history.js";
import { duration } from "./format.js";

/** Spans of the time axis. The smallest one that has room for all points is shown. */
const SPANS_MS = [60000, 120000, 300000];
const WIDTH = 300;
const HEIGHT = 100;

/** Charts that show the same moment when the pointer is over one of them, or when the arrow keys move. */
export class ChartGroup {
  #charts = [];
  #agoMs = null;
  #spanMs = SPANS_MS[0];

  constructor() {
    this.element = h("div", { class: "charts" });
  }

  add(chart) {
    this.#charts.push(chart);
    this.element.append(chart.element);
    chart.plot.addEventListener("pointermove", (event) => {
      const box = chart.drawing.getBoundingClientRect();
      this.#pick(this.#spanMs * (1 - (event.clientX - box.left) / box.width));
    });
    chart.plot.addEventListener("pointerleave", () => this.#pick(null));
    chart.plot.addEventListener("blur", () => this.#pick(null));
    chart.plot.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: 5000, ArrowRight: -5000, Home: this.#spanMs, End: -this.#spanMs }[event.key];
      if (!step) return;
      event.preventDefault();
      this.#pick((this.#agoMs ?? 0) + step);
    });
  }

  #pick(agoMs) {
    this.#agoMs = agoMs === null ? null : Math.min(this.#spanMs, Math.max(0, agoMs));
    for (const chart of this.#charts) chart.pick(this.#agoMs);
  }

  /** Draws all charts again from these points. */
  update(points) {
    const covered = points.length === 0 ? 0 : points.at(-1).time - points[0].time;
    this.#spanMs = SPANS_MS.find((span) => span >= covered) ?? SPANS_MS.at(-1);
    for (const chart of this.#charts) chart.update(points, this.#agoMs, this.#spanMs);
    setAttribute(this.element, "data-count", this.#charts.filter((chart) => !chart.element.hidden).length);
  }

  /** Shows or hides a chart. */
  show(chart, shown) {
    chart.element.hidden = !shown;
  }
}

/**
 * One chart. `options`: `name`, `title`, `explanation`, `format(value)`, `formatTick(value)`, `series`: a list of
 * `{name, label, value(point)}`, and `scale`: `linear` from 0, `share` from 0 to 1, or `log` for durations in
 * nanoseconds.
 */
export class Chart {
  #points = [];
  #spanMs = SPANS_MS[0];

  constructor(options) {
    this.options = options;
    this.lines = options.series.map((series) => svg("path", { class: `line ${series.name}` }));
    this.area = svg("path", { class: "area" });
    this.grid = svg("path", { class: "grid" });
    this.cursor = svg("path", { class: "cursor" });
    this.drawing = svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      this.grid,
      this.area,
      ...this.lines,
      this.cursor,
    );
    this.labels = h("div", { class: "ticks", "aria-hidden": "true" });
    this.values = options.series.map((series) => h("span", { "data-live": `${options.name}-${series.name}` }, "–"));
    this.when = h("span", { class: "when" });
    this.plot = h(
      "div",
      {
        class: "plot",
        tabindex: "0",
        role: "slider",
        "aria-label": `${options.title}, time`,
        "aria-orientation": "horizontal",
        "aria-valuemin": String(-SPANS_MS.at(-1) / 1000),
        "aria-valuemax": "0",
        "aria-valuenow": "0",
        "aria-valuetext": "now",
      },
      this.drawing,
      this.labels,
    );
    const legend = options.series.map((series, index) =>
      h(
        "span",
        { class: `reading ${series.name}` },
        series.label ? h("span", { class: "label" }, series.label) : null,
        this.values[index],
      ),
    );
    this.element = h(
      "section",
      { class: "chart", "data-chart": options.name },
      h("header", {}, h("h3", {}, options.title), this.when),
      h("p", { class: "readings" }, legend),
      this.plot,
      h("p", { class: "explanation" }, options.explanation),
    );
  }

  update(points, agoMs, spanMs) {
    this.#points = points;
    this.#spanMs = spanMs;
    if (this.element.hidden || points.length === 0) return;
    const now = points.at(-1).time;
    const scale = this.#scale(points);
    const x = (point) => WIDTH * (1 - (now - point.time) / spanMs);
    this.options.series.forEach((series, index) => {
      const runs = runsOf(points, series.value);
      const line = runs
        .map(
          (run) =>
            run
              .map((point, at) => `${at ? "L" : "M"}${x(point).toFixed(1)} ${scale.y(series.value(point)).toFixed(1)}`)
              .join("") + dot(run),
        )
        .join("");
      this.lines[index].setAttribute("d", line);
      if (index > 0) return;
      const filled = runs
        .filter((run) => run.length > 1)
        .map(
          (run) =>
            `M${x(run[0]).toFixed(1)} ${HEIGHT}` +
            run.map((point) => `L${x(point).toFixed(1)} ${scale.y(series.value(point)).toFixed(1)}`).join("") +
            `L${x(run.at(-1)).toFixed(1)} ${HEIGHT}Z`,
        );
      this.area.setAttribute("d", filled.join(""));
    });
    this.#showTicks(scale);
    this.pick(agoMs);
  }

  #scale(points) {
    const values = points
      .flatMap((point) => this.options.series.map((series) => series.value(point)))
      .filter((value) => value !== null);
    if (this.options.scale === "share") return { y: (value) => HEIGHT * (1 - Math.min(1, value)), ticks: [0.5, 1] };
    if (this.options.scale === "linear") {
      const top = niceTop(Math.max(...values, 0));
      return { y: (value) => HEIGHT * (1 - value / top), ticks: [top / 2, top] };
    }
    // Powers of ten from a microsecond on. Two decades at least, so that noise does not look like a change.
    const low = Math.max(3, Math.floor(Math.log10(Math.max(1000, Math.min(...values, 1e15)))));
    const start = values.length === 0 ? 3 : Math.min(low, 9);
    const end = Math.max(start + 2, Math.ceil(Math.log10(Math.max(...values, 1))));
    const step = end - start > 4 ? 2 : 1;
    const ticks = [];
    for (let power = start + 1; power <= end; power += 1) if ((end - power) % step === 0) ticks.push(10 ** power);
    return { y: (value) => HEIGHT * (1 - (Math.log10(Math.max(value, 10 ** start)) - start) / (end - start)), ticks };
  }

  #showTicks(scale) {
    this.grid.setAttribute("d", scale.ticks.map((tick) => `M0 ${scale.y(tick).toFixed(1)}H${WIDTH}`).join(""));
    while (this.labels.children.length > scale.ticks.length) this.labels.lastChild.remove();
    while (this.labels.children.length < scale.ticks.length) this.labels.append(h("span"));
    scale.ticks.forEach((tick, index) => {
      const label = this.labels.children[index];
      setText(label, this.options.formatTick(tick));
      label.style.top = `${scale.y(tick)}%`;
    });
  }

  /** Shows the values of the moment this long ago; null means the newest values. */
  pick(agoMs) {
    if (this.#points.length === 0) return;
    const now = this.#points.at(-1).time;
    const point = agoMs === null ? this.#points.at(-1) : nearest(this.#points, now - agoMs);
    const picked = agoMs !== null;
    this.element.classList.toggle("picked", picked);
    this.cursor.setAttribute("d", picked ? `M${(WIDTH * (1 - agoMs / this.#spanMs)).toFixed(1)} 0V${HEIGHT}` : "");
    const texts = this.options.series.map((series) => {
      const value = point ? series.value(point) : null;
      return value === null ? "–" : this.options.format(value);
    });
    texts.forEach((text, index) => setText(this.values[index], text));
    const when = !picked
      ? `last ${duration(this.#spanMs)}`
      : agoMs < 1000
        ? "now"
        : `${duration(Math.round(agoMs / 1000) * 1000).replace(".0", "")} ago`;
    setText(this.when, when);
    const spoken = this.options.series.map((series, index) => `${series.label} ${texts[index]}`.trim()).join(", ");
    setAttribute(this.plot, "aria-valuenow", picked ? -Math.round(agoMs / 1000) : 0);
    setAttribute(this.plot, "aria-valuetext", `${picked ? when : "now"}: ${spoken}`);
  }
}

/** Runs of points that have a value, without gaps between them. */
function runsOf(points, value) {
  const runs = [];
  let last = null;
  for (const point of points) {
    if (value(point) === null) {
      last = null;
      continue;
    }
    if (last === null || point.time - last.time > GAP_MS) runs.push([]);
    runs.at(-1).push(point);
    last = point;
  }
  return runs;
}

/** A run of one point is a line of no length, which the round cap shows as a dot. */
function dot(run) {
  return run.length === 1 ? "h0.01" : "";
}

/** The point at this time; null in a gap. */
function nearest(points, time) {
  let best = null;
  for (const point of points) {
    if (best === null || Math.abs(point.time - time) < Math.abs(best.time - time)) best = point;
  }
  return best && Math.abs(best.time - time) <= GAP_MS ? best : null;
}

/** The next larger 1, 2 or 5 times a power of ten; at least 10, so that single requests do not fill the chart. */
function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 10)));
  const step = [1, 2, 5, 10, 20].find((factor) => factor * power >= value * 1.05);
  return step * power;
}
