"use strict";
// After a change, a note beside the button names what was requested and offers Undo, and the row keeps its place.

const toast = document.getElementById("toast");
const toastTime = 12000;
const held = new Set(); // The keys of the rows that keep their place.
let latest = [], toastTimer = null, undoSteps = [];

// holdPlaces returns the wanted rows with held rows where they are shown at present.
function holdPlaces(wanted) {
  latest = wanted.map(({ key, sum }) => ({ key, sum }));
  if (held.size === 0) return wanted;
  const found = new Map(wanted.map((row) => [row.key, row]));
  const placed = wanted.filter(({ key }) => !held.has(key));
  for (const [at, row] of [...rows.children].entries()) {
    const { key, sum } = row.dataset;
    if (held.has(key)) placed.splice(Math.min(at, placed.length), 0, found.get(key) ?? { key, sum });
  }
  return placed;
}

function releaseRows() {
  if (held.size === 0) return;
  held.clear();
  showRows(latest);
}

function closeToast() {
  clearTimeout(toastTimer);
  if (toast.hidden) return;
  const hadFocus = toast.contains(document.activeElement);
  toast.hidden = true;
  const key = [...held][0];
  releaseRows();
  if (hadFocus && key) rows.querySelector(`tr[data-key="${CSS.escape(key)}"] .act button`)?.focus();
}

// waitToClose closes the note later, but not while the user points at it or has its focus.
function waitToClose() {
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => {
    if (toast.matches(":hover, :focus-within")) waitToClose();
    else closeToast();
  }, toastTime);
}

// showToast shows the text below the row of a key, or at the bottom of a narrow window. steps are the requests of Undo.
function showToast(text, key, steps) {
  const row = rows.querySelector(`tr[data-key="${CSS.escape(key)}"]`);
  const dialog = document.querySelector("dialog[open]"); // Outside of an open dialog the note could not be used.
  const isBeside = Boolean(row) && !dialog && innerWidth >= 700;
  (dialog ?? document.body).append(toast);
  toast.style.top = isBeside ? `${row.getBoundingClientRect().bottom + scrollY + 4}px` : "";
  toast.classList.toggle("beside", isBeside);
  toast.querySelector("span").textContent = text;
  undoSteps = steps;
  toast.querySelector("button.undo").hidden = steps.length === 0;
  toast.hidden = false;
  if (isBeside) toast.scrollIntoView({ block: "nearest" });
  waitToClose();
}

async function post(path, values) {
  const body = values instanceof URLSearchParams ? values : new URLSearchParams(values);
  const answer = await fetch(path, { method: "POST", body, signal: AbortSignal.timeout(60000) });
  const text = await answer.text();
  if (!answer.ok) throw new Error(text);
  return text;
}

// undoOf returns the request that takes a change back: a start that restores, or a stop with the same reason and end.
function undoOf(verb, target) {
  const { kind, namespace, name, part, reason, until } = target;
  if (verb === "stop") return [{ verb: "start", kind, namespace, name, part }];
  if (verb === "start") return [{ verb: "stop", kind, namespace, name, part, reason: reason ?? "", until: Date.parse(until) > Date.now() ? until : "" }];
  return [];
}

// groupSteps joins the requests that differ in their objects only, so that each group is one request.
function groupSteps(steps) {
  return Map.groupBy(steps, ({ verb, reason, until }) => JSON.stringify([verb, reason, until])).values();
}

toast.querySelector("button.undo").addEventListener("click", async () => {
  const steps = undoSteps, key = [...held][0] ?? "";
  showToast("Undo is requested", key, []);
  try {
    for (const [one, ...others] of groupSteps(steps)) {
      const { verb, reason = "", until = "" } = one;
      if (others.length === 0) {
        await post("switch", one);
        continue;
      }
      const values = new URLSearchParams({ verb, reason, until });
      for (const step of [one, ...others]) values.append("object", addressOf(step));
      const { refused } = JSON.parse(await post("switches", values));
      if (refused.length > 0) throw new Error(`${refused.length} objects were refused: ${refused[0].error}`);
    }
    news.textContent = "The change is taken back";
    showToast("The change is taken back", key, []);
  } catch (error) {
    showToast(`Undo failed: ${error.message}`, key, steps);
  }
});
toast.querySelector("button.close").addEventListener("click", closeToast);
