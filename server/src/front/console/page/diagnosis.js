// The causes of slow grants, in the order in which an operator should rule them out.

import { escaped } from "./dom.js";
import { handovers, holds, quorumRequests, syncs, waits } from "./history.js";
import { counted, duration, measured, percent } from "./format.js";

const WINDOW_MS = 30000;
/** The alerts of the monitoring folder use the same thresholds. */
const SLOW_NS = 100e6;
const BUSY = 0.9;

/** Judges the latest event. Returns `{verdict, causes}`; a cause has `name`, `title`, `level` (ok, notice or high), `value` and `text`. */
export function diagnose(history) {
  const event = history.latest;
  const wait = history.quantiles(waits, WINDOW_MS);
  const handover = history.quantiles(handovers, WINDOW_MS);
  const causes = [
    ...refusals(event),
    holders(event, history.quantiles(holds, WINDOW_MS)),
    handoverCause(handover),
    workers(event),
    ...durable(event, history),
  ];
  return { verdict: verdict(event, causes, wait), causes };
}

function verdict(event, causes, wait) {
  const high = causes.filter((cause) => cause.level === "high");
  const median = wait
    ? `Half of the waiters waited less than ${measured(wait.p50)}, 99\u00a0% less than ${measured(wait.p99)}. `
    : "";
  if (high.some((cause) => cause.name === "refused")) return `${median}The server refuses claims. Start there.`;
  if (high.length > 0)
    return `${median}The server is a cause. Look first at: ${high.map((cause) => cause.title.toLowerCase()).join(", ")}.`;
  if (event.waiting > 0 || wait) return `${median}Waiters wait for holders, not for the server.`;
  return "Nothing slows grants: no acquire waits.";
}

function refusals(event) {
  if (event.reasons.length === 0) return [];
  const level = event.ready && event.reasons.every((reason) => reason.code === "compaction_failing") ? "notice" : "high";
  return [
    {
      name: "refused",
      title: "Refused claims",
      level,
      value: event.reasons.map((reason) => reason.code.replaceAll("_", " ")).join(", "),
      text: "The reasons at the top of this page say which claims are refused.",
    },
  ];
}

function holders(event, hold) {
  const top = event.contention.find((item) => item.waiting > 0);
  const link = { href: "#/contention", text: "Contended keys" };
  const held = hold
    ? `Half of the locks are held for less than ${measured(hold.p50)}, 99\u00a0% for less than ${measured(hold.p99)}. `
    : "";
  if (event.waiting === 0)
    return { name: "holders", title: "Holders", level: "ok", value: "no waiters", text: `${held}No acquire waits now.`, link };
  const name = top
    ? `Contended: ${shortened(top.key)} has ${counted(top.waiting, "waiter")}, the oldest for ${duration(top.oldest_wait_ms ?? 0)}.`
    : "";
  return {
    name: "holders",
    title: "Holders",
    level: "notice",
    value: counted(event.waiting, "waiter"),
    text: `${held}${name}`,
    link,
  };
}

function shortened(key) {
  const characters = [...key];
  return escaped(characters.length > 48 ? `${characters.slice(0, 47).join("")}…` : key);
}

function handoverCause(handover) {
  const base = { name: "handover", title: "Hand-over" };
  if (!handover) return { ...base, level: "ok", value: "–", text: "No key went to a waiter in the last 30 s." };
  if (handover.p99 < SLOW_NS)
    return { ...base, level: "ok", value: `p99 ${measured(handover.p99)}`, text: "A free key goes to its next waiter quickly." };
  return {
    ...base,
    level: "high",
    value: `p99 ${measured(handover.p99)}`,
    text: "A free key takes long to reach its next waiter. Look at workers, log and quorum.",
  };
}

function workers(event) {
  const busy = event.workers.filter((ratio) => ratio >= BUSY).length;
  const top = Math.max(0, ...event.workers);
  const base = { name: "workers", title: "Workers", value: `busiest ${percent(top)}` };
  if (busy === 0) return { ...base, level: "ok", text: "Every worker has time left." };
  if (busy === event.workers.length)
    return { ...base, level: "high", text: "All workers are busy. Add cores and workers. With busy polling this is normal." };
  return {
    ...base,
    level: "high",
    text: `${counted(busy, "worker")} of ${event.workers.length} busy. Let its clients open more connections.`,
  };
}

function durable(event, history) {
  return [
    stage(
      "log",
      "Log sync",
      event.log,
      history.quantiles(syncs, WINDOW_MS),
      "This server has no log, so grants do not wait for a disk.",
      "The disk takes grants quickly.",
      "The disk is slow, so durable grants are slow. Look for other writers, or a failing disk.",
    ),
    stage(
      "quorum",
      "Quorum",
      event.quorum,
      history.quantiles(quorumRequests, WINDOW_MS),
      "This server has no etcd cluster, so grants do not wait for it.",
      "The etcd cluster responds quickly.",
      "The etcd cluster responds slowly, so quorum grants are slow.",
    ),
  ];
}

function stage(name, title, present, quantiles, absent, fast, slow) {
  if (present === null) return { name, title, level: "ok", value: "none", text: absent };
  if (present.state !== "ready")
    return { name, title, level: "high", value: present.state.replaceAll("_", " "), text: "It takes no new grants now." };
  if (!quantiles) return { name, title, level: "ok", value: "–", text: "Not used in the last 30 s." };
  const value = `p99 ${measured(quantiles.p99)}`;
  return quantiles.p99 < SLOW_NS
    ? { name, title, level: "ok", value, text: fast }
    : { name, title, level: "high", value, text: slow };
}
