// The first view: state, load, charts, the causes of slow grants, and the contended keys.

import { h, setText, setAttribute, heading, Table } from "./dom.js";
import { Chart, ChartGroup } from "./charts.js";
import { renewSlack } from "./history.js";
import { diagnose } from "./diagnosis.js";
import { contentionTable } from "./contention.js";
import { bytes, count, counted, duration, measured, percent, rate, sentence, words } from "./format.js";

/** Actions for an operator by the code of a reason. */
const REMEDIES = {
  disk_full: "Free space on the disk of the log; grants resume within seconds.",
  log_stalled: "Look for a disk or a network file system that hangs; grants resume when the write ends.",
  compaction_failing: "The log grows, and the next start may refuse it. Free disk space, or read the log of the server.",
  memory_full: "Find out which of held, waiting, sessions and connections grows, and end it or raise the memory limit.",
  quorum_down: "Repair the etcd cluster; grants with scope quorum resume when it responds.",
  recovering: "Wait. Holders can renew and release meanwhile.",
  stopping: "The server drains: it ends when its clients have left or the time is over.",
};

const DURATION = {
  scale: "log",
  format: measured,
  // Ticks are powers of ten, and minutes would not fit beside the chart.
  formatTick: (ns) => (ns < 1e9 ? measured(ns).replace(".0", "") : `${count(ns / 1e9)}\u00a0s`),
};

function quantileSeries(name) {
  return [
    { name: "p99", label: "p99", value: (point) => point[name]?.p99 ?? null },
    { name: "p50", label: "p50", value: (point) => point[name]?.p50 ?? null },
  ];
}

function makeCharts() {
  return {
    grants: new Chart({
      name: "grants",
      title: "Grants per second",
      scale: "linear",
      format: rate,
      formatTick: count,
      explanation: "Acquires that were granted. If it falls while the load stays the same, see “Why are grants slow?”",
      series: [{ name: "only", label: "", value: (point) => point.grants }],
    }),
    wait: new Chart({
      name: "wait",
      title: "Wait",
      ...DURATION,
      series: quantileSeries("wait"),
      explanation:
        "Time that granted waiters waited. If it is high, holders keep their keys for long: look at the contended keys.",
    }),
    handover: new Chart({
      name: "handover",
      title: "Hand-over",
      ...DURATION,
      series: quantileSeries("handover"),
      explanation:
        "Time from a free key to the grant of its next waiter. If it is high, the server is the cause: look at log, quorum and workers.",
    }),
    sync: new Chart({
      name: "sync",
      title: "Log sync",
      ...DURATION,
      series: quantileSeries("sync"),
      explanation: "Time to write grants to the disk. If it is high, look for other writers on the disk, or a failing disk.",
    }),
    quorum: new Chart({
      name: "quorum",
      title: "Quorum request",
      ...DURATION,
      series: quantileSeries("quorum"),
      explanation: "Time of a request to the etcd cluster. If it is high, look at the cluster and the network to it.",
    }),
    busy: new Chart({
      name: "busy",
      title: "Busy workers",
      scale: "share",
      format: percent,
      formatTick: percent,
      series: [
        { name: "p99", label: "busiest", value: (point) => point.busy?.max ?? null },
        { name: "p50", label: "mean", value: (point) => point.busy?.mean ?? null },
      ],
      explanation:
        "Share of time in which worker threads run. If it is near 100\u00a0%, add cores and workers, or spread clients over more connections.",
    }),
  };
}

/** A large number with its label and a line of details. */
class Figure {
  constructor(name, label) {
    this.value = h("dd", { class: "value", "data-live": name }, "–");
    this.detail = h("dd", { class: "detail", "data-live": `${name}-detail` });
    this.element = h("div", { class: "figure" }, h("dt", {}, label), this.value, this.detail);
  }

  update(value, detail = "") {
    setText(this.value, value);
    setText(this.detail, detail);
  }
}

/** A small table of counters by name: total, and the rate or the increase. */
function counterTable(test, caption, label, change) {
  return new Table(
    [
      { name: "name", label, once: true, render: (cell, item) => setText(cell, words(item.name)) },
      { name: "change", label: change, numeric: true, render: (cell, item) => setText(cell, item.change) },
      { name: "total", label: "Since start", numeric: true, render: (cell, item) => setText(cell, count(item.total)) },
    ],
    {
      test,
      caption,
      id: (item) => item.name,
      attributes: (item) => ({ "data-name": item.name }),
      class: "small",
      empty: "None since the server started.",
    },
  );
}

class Meter {
  constructor(label, test) {
    this.value = h("span", { "data-live": test });
    this.bar = h("div", { class: "meter-fill" });
    this.note = h("p", { class: "explanation" });
    this.track = h("div", { class: "meter", hidden: true }, this.bar);
    this.element = h(
      "div",
      { class: "resource", "data-test": `resource-${test}` },
      h("p", { class: "resource-head" }, h("span", {}, label), this.value),
      this.track,
      this.note,
    );
  }

  update(value, note, share = null, level = "ok") {
    setText(this.value, value);
    setText(this.note, note);
    this.track.hidden = share === null;
    if (share !== null) this.bar.style.width = `${Math.min(100, share * 100)}%`;
    setAttribute(this.element, "data-level", level);
  }
}

const LOG_STATES = {
  ready: ["ready", "ok", "Grants with scope local and quorum are written to the log."],
  no_space: ["disk full", "high", "New durable grants are refused. Free space on the disk."],
  stalled: ["stalled", "high", "A write takes very long. New durable grants are refused until it ends."],
  failed: ["failed", "high", "The log failed. Read the log of the server, check the disk, and start the server again."],
};

export function overview({ history }) {
  const state = new StatePanel();
  const figures = {
    acquires: new Figure("acquires", "Acquires per second"),
    held: new Figure("held", "Held"),
    waiting: new Figure("waiting", "Waiting"),
    sessions: new Figure("sessions", "Sessions"),
    connections: new Figure("connections", "Connections"),
  };
  const group = new ChartGroup();
  const charts = makeCharts();
  for (const chart of Object.values(charts)) group.add(chart);
  const diagnosis = new DiagnosisPanel();
  const contention = contentionTable(8);
  const acquires = counterTable("acquires", "Acquires by result", "Result", "Per second");
  const lost = counterTable("lost", "Locks lost by reason", "Reason", "Recent");
  const rejected = counterTable("rejected", "Rejections by limit", "Limit", "Recent");
  const slack = h("p", { class: "explanation", "data-live": "renew-slack" });
  const lostSpan = h("p", { class: "explanation" });
  const rejectedSpan = h("p", { class: "explanation" });
  const memory = new Meter("Memory", "memory");
  const log = new Meter("Log", "log");
  const quorum = new Meter("Quorum", "quorum");

  const element = h(
    "div",
    { class: "view overview" },
    state.element,
    h(
      "dl",
      { class: "figures", "aria-label": "Load" },
      Object.values(figures).map((figure) => figure.element),
    ),
    h(
      "div",
      { class: "columns" },
      h(
        "div",
        { class: "lane" },
        h("section", { class: "order-charts" }, h("h2", { class: "unseen" }, "Charts"), group.element),
        h(
          "section",
          { class: "panel order-contention" },
          h(
            "div",
            { class: "panel-head" },
            heading(2, "Contended keys", "Keys with the most waits. Open a key to see its holder and its queue."),
            h("a", { href: "#/contention", class: "more", "data-test": "all-contention" }, "All contended keys"),
          ),
          contention.element,
        ),
        h(
          "section",
          { class: "panel", "data-test": "panel-acquires" },
          heading(2, "Acquires", "Answered acquires by result."),
          acquires.element,
        ),
      ),
      h(
        "div",
        { class: "side" },
        diagnosis.element,
        h(
          "section",
          { class: "panel", "data-test": "panel-resources" },
          h("h2", {}, "Resources"),
          memory.element,
          log.element,
          quorum.element,
        ),
        h(
          "section",
          { class: "panel", "data-test": "panel-lost" },
          heading(2, "Locks lost", "Locks that ended without a release by their holder."),
          lost.element,
          lostSpan,
          slack,
        ),
        h(
          "section",
          { class: "panel", "data-test": "panel-rejected" },
          heading(2, "Rejections", "Requests and connections that reached a limit. Find these clients, or raise the limit."),
          rejected.element,
          rejectedSpan,
        ),
      ),
    ),
  );

  function live(event) {
    state.update(event);
    const rates = Object.keys(event.acquires).map((name) => [name, history.rate("acquires", name)]);
    const measuring = rates.some(([, value]) => value === null);
    const total = rates.reduce((sum, [, value]) => sum + value, 0);
    const granted = history.rate("acquires", "granted") ?? 0;
    figures.acquires.update(
      measuring ? "–" : rate(total),
      measuring ? "measuring" : `granted ${rate(granted)} · other ${rate(total - granted)}`,
    );
    figures.held.update(count(event.held), "locks and other claims");
    const oldest = Math.max(0, ...event.contention.map((item) => item.oldest_wait_ms ?? 0));
    figures.waiting.update(count(event.waiting), oldest > 0 && event.waiting > 0 ? `oldest contended: ${duration(oldest)}` : "");
    figures.sessions.update(count(event.sessions));
    const fronts = Object.entries(event.connections);
    const used = fronts.filter(([, number]) => number > 0);
    figures.connections.update(
      count(fronts.reduce((sum, [, number]) => sum + number, 0)),
      used.map(([name, number]) => `${name} ${count(number)}`).join(" · "),
    );

    group.show(charts.sync, event.log !== null);
    group.show(charts.quorum, event.quorum !== null);
    group.update(history.points);
    diagnosis.update(diagnose(history));
    contention.update(event.contention);

    const counters = (name, change) =>
      Object.entries(event[name]).map(([key, total]) => ({ name: key, total, change: change(key) }));
    const increases = (name) => counters(name, (key) => count(history.increase(name, key))).filter((item) => item.total > 0);
    acquires.update(
      counters("acquires", (key) => {
        const value = history.rate("acquires", key);
        return value === null ? "–" : rate(value);
      }),
    );
    lost.update(increases("lost"));
    rejected.update(increases("rejected"));
    const recent = `Recent: the last ${duration(Math.max(1000, Math.round(history.coveredMs / 1000) * 1000)).replace(".0", "")}.`;
    setText(lostSpan, recent);
    setText(rejectedSpan, recent);
    lostSpan.hidden = lost.rows.size === 0;
    rejectedSpan.hidden = rejected.rows.size === 0;
    const remaining = history.quantiles(renewSlack, 60000);
    setText(
      slack,
      remaining
        ? `1\u00a0% of the renewals of the last minute arrived with less than ${measured(remaining.p01)} of the lease left. If this is near 0, leases are too short.`
        : "No lease was renewed in the last minute.",
    );

    showMemory(memory, event.memory);
    showLog(log, event.log);
    if (event.quorum === null) quorum.update("none", "Scope quorum is not available on this server.");
    else if (event.quorum.state === "ready") quorum.update("ready", "The etcd cluster responds.");
    else quorum.update("unavailable", "The etcd cluster does not respond. Grants with scope quorum are refused.", null, "high");
  }

  return { title: "Overview", element, live };
}

function showMemory(meter, { used_bytes: used, limit_bytes: limit }) {
  if (limit === null) {
    meter.update(bytes(used), "No limit is set.");
    return;
  }
  const share = used / limit;
  const note =
    share >= 0.9
      ? "Above the limit the server refuses new claims. Find what grows, or raise the limit."
      : "Above the limit the server refuses new claims.";
  meter.update(`${bytes(used)} of ${bytes(limit)}`, note, share, share >= 0.9 ? "high" : "ok");
}

function showLog(meter, log) {
  if (log === null) {
    meter.update("none", "Locks are kept in memory only.");
    return;
  }
  const [text, level, note] = LOG_STATES[log.state] ?? [log.state, "notice", ""];
  const failures = log.compaction_failures > 0 ? ` ${counted(log.compaction_failures, "compaction")} failed since start.` : "";
  meter.update(
    `${text}, ${counted(log.segments, "segment")}`,
    note + failures,
    null,
    level === "ok" && failures ? "notice" : level,
  );
}

/** State of the server, the reasons, and the identity of the server. */
class StatePanel {
  constructor() {
    this.title = h("h1", { tabindex: "-1", "data-test": "state-text" }, "No data yet");
    this.summary = h("p", { class: "explanation", "data-test": "state-summary" });
    this.reasons = h("ul", { class: "reasons", "data-test": "reasons" });
    this.server = h("p", { class: "server", "data-test": "server" });
    this.element = h(
      "section",
      { class: "state", "data-test": "state", "aria-label": "State of the server" },
      h(
        "div",
        {},
        h("div", { class: "state-title" }, h("span", { class: "dot", "aria-hidden": "true" }), this.title),
        this.summary,
        this.reasons,
      ),
      this.server,
    );
    this.shown = "";
  }

  update({ ready, reasons, server }) {
    const level = !ready ? "not_ready" : reasons.length > 0 ? "degraded" : "ready";
    setAttribute(this.element, "data-state", level);
    setText(this.title, { ready: "Ready", degraded: "Degraded", not_ready: "Not ready" }[level]);
    setText(
      this.summary,
      {
        ready: "The server grants, renews and releases locks.",
        degraded: "The server renews and releases locks. It may refuse some new claims.",
        not_ready: "The server refuses new claims.",
      }[level],
    );
    const facts = `Version ${server.version} · up ${duration(server.uptime_ms)} · id ${server.id}`;
    setText(this.server, facts);
    // The list is rebuilt only for other reasons, so that screen readers and selections are not disturbed.
    const shown = JSON.stringify(reasons.map((reason) => [reason.code, reason.message]));
    if (shown !== this.shown) {
      this.shown = shown;
      this.remaining = reasons.map(() => h("span", { class: "remaining" }));
      this.reasons.replaceChildren(
        ...reasons.map((reason, index) =>
          h(
            "li",
            { "data-code": reason.code },
            sentence(reason.message),
            " ",
            h("span", { class: "remedy" }, REMEDIES[reason.code] ?? ""),
            this.remaining[index],
          ),
        ),
      );
    }
    reasons.forEach((reason, index) =>
      setText(
        this.remaining[index],
        reason.remaining_ms === null || reason.remaining_ms === undefined ? "" : ` ${duration(reason.remaining_ms)} remaining.`,
      ),
    );
  }
}

/** The causes of slow grants, each with its present value. */
class DiagnosisPanel {
  constructor() {
    this.verdict = h("p", { class: "verdict", "data-test": "verdict" }, "Measuring…");
    this.list = h("ol", { class: "causes" });
    this.rows = new Map();
    this.element = h(
      "section",
      { class: "panel diagnosis", "data-test": "diagnosis" },
      h("h2", {}, "Why are grants slow?"),
      this.verdict,
      this.list,
    );
  }

  update({ verdict, causes }) {
    setText(this.verdict, verdict);
    const wanted = new Set(causes.map((cause) => cause.name));
    for (const [name, row] of this.rows) row.element.hidden = !wanted.has(name);
    for (const cause of causes) {
      let row = this.rows.get(cause.name);
      if (!row) {
        row = { value: h("span", { class: "cause-value" }), text: h("p", { class: "explanation" }) };
        row.element = h(
          "li",
          { "data-cause": cause.name },
          h(
            "p",
            { class: "cause-head" },
            h("span", { class: "dot", "aria-hidden": "true" }),
            h("span", { class: "cause-title" }, cause.title),
            row.value,
          ),
          row.text,
          cause.link ? h("a", { href: cause.link.href, class: "more" }, cause.link.text) : null,
        );
        this.rows.set(cause.name, row);
        this.list.insertBefore(row.element, this.list.children[causes.indexOf(cause)] ?? null);
      }
      setAttribute(row.element, "data-level", cause.level);
      setText(row.value, cause.value);
      setText(row.text, cause.text);
    }
  }
}
