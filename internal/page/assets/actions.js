"use strict";
// Actions on one object or on the selected ones, after a question in a dialog.

const flipDialog = document.getElementById("flip");
const flipForm = flipDialog.querySelector("form"), flipProblem = flipDialog.querySelector(".error"), flipSubmit = flipDialog.querySelector("button[type=submit]");
const selectionBar = document.getElementById("selection");
const maxSelected = 50, maxReasons = 8;
const selected = new Set(); // The keys of the selected rows.
let asked = { verb: "", targets: [], key: "" };

const actionTexts = {
  stop: ["Stop", "The object then starts by itself. If empty, it stays stopped until a user starts it."],
  start: ["Start", ""],
  extend: ["Extend", "The new end of the stop, later than the present one."],
  skip: ["Skip", "Slumbers leave the object running until then. If empty, until the end of the current or next sleep."],
};

function addressOf({ kind, namespace, name, part }) {
  return new URLSearchParams({ kind, namespace, name, part }).toString();
}

// ask opens the dialog for an action on some objects. key is that of the row to which the focus returns.
function ask(verb, targets, key) {
  const [title, hint] = actionTexts[verb], [{ kind, namespace, part, title: name }] = targets;
  const isOne = targets.length === 1;
  asked = { verb, targets, key };
  flipForm.reset();
  document.getElementById("flip-title").textContent = `${title} ${isOne ? name : `${targets.length} objects`}?`;
  document.getElementById("flip-what").textContent = `${isOne ? `${kind} in ${namespace}: ${part}. ` : ""}Your user name is recorded.`;
  const list = document.getElementById("flip-objects");
  list.hidden = isOne;
  list.replaceChildren(...(isOne ? [] : targets).map((one) => {
    const item = document.createElement("li");
    item.textContent = `${one.title}: ${one.kind} in ${one.namespace}, ${one.part}`;
    return item;
  }));
  document.getElementById("flip-why").hidden = verb !== "stop";
  document.getElementById("flip-end").hidden = verb === "start";
  document.getElementById("flip-until").textContent = `${hint} Times without a zone are those of ${zone || "UTC"}.`;
  document.getElementById("flip-echo").textContent = "";
  flipForm.elements.until.required = verb === "extend";
  listReasons();
  flipSubmit.textContent = title;
  flipProblem.hidden = true;
  flipDialog.showModal();
  ({ stop: flipForm.elements.reason, start: flipSubmit }[verb] ?? flipForm.elements.until).focus();
}

function returnFocus() {
  if (isDrawerOpen()) focusInDrawer(asked.verb);
  else rows.querySelector(`tr[data-key="${CSS.escape(asked.key)}"] .act button`)?.focus();
}

flipDialog.querySelector("button[value=cancel]").addEventListener("click", () => flipDialog.close());
flipDialog.addEventListener("close", returnFocus);

// --- Reasons and ends ---

function readReasons() {
  try {
    return JSON.parse(localStorage.getItem("torpor-reasons") ?? "[]");
  } catch {
    return []; // The browser stores nothing.
  }
}

function rememberReason(reason) {
  if (!reason) return;
  try {
    localStorage.setItem("torpor-reasons", JSON.stringify([reason, ...readReasons().filter((one) => one !== reason)].slice(0, maxReasons)));
  } catch {
    // The browser stores nothing.
  }
}

function listReasons() {
  document.getElementById("reasons").replaceChildren(...readReasons().map((reason) => {
    const option = document.createElement("option");
    option.value = reason;
    return option;
  }));
}

let echoTimer = null, echoLoad = 0;

// echoUntil shows which time the text of the field means.
async function echoUntil() {
  const load = ++echoLoad, until = flipForm.elements.until.value.trim(), shown = document.getElementById("flip-echo");
  let text = "";
  if (until) {
    try {
      const answer = await fetch(`until?${new URLSearchParams({ until, zone })}`, { signal: AbortSignal.timeout(10000) });
      if (answer.ok) text = `Until ${await answer.text()}`;
    } catch {
      // The request itself reports an error.
    }
  }
  if (load === echoLoad) shown.textContent = text;
}

flipForm.elements.until.addEventListener("input", () => {
  clearTimeout(echoTimer);
  echoTimer = setTimeout(echoUntil, 300);
});

flipDialog.querySelector(".chips").addEventListener("click", (event) => {
  const end = event.target.closest("button")?.dataset.end;
  if (!end) return;
  flipForm.elements.until.value = end;
  echoUntil();
});

// --- Requests ---

flipForm.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { verb, targets, key } = asked, [title] = actionTexts[verb];
  const reason = flipForm.elements.reason.value.trim();
  const values = new URLSearchParams({ verb, reason, until: flipForm.elements.until.value, zone });
  flipSubmit.disabled = true;
  flipProblem.hidden = true;
  held.clear();
  for (const one of targets) held.add(one.key ?? key);
  try {
    let done = targets;
    if (targets.length === 1) {
      for (const field of ["kind", "namespace", "name", "part"]) values.set(field, targets[0][field]);
      await post("switch", values);
    } else {
      done = await postAll(values, targets);
    }
    rememberReason(reason);
    const what = targets.length === 1 ? targets[0].title : `${done.length} objects`;
    news.textContent = `${what}: asked to ${verb}`;
    selected.clear();
    showSelection();
    if (done.length === targets.length) flipDialog.close();
    reloadDrawer();
    showToast(`${title} of ${what} is requested`, key, done.flatMap((one) => undoOf(verb, one)));
  } catch (error) {
    releaseRows();
    flipProblem.textContent = error.message;
    flipProblem.hidden = false;
  } finally {
    flipSubmit.disabled = false;
  }
});

// postAll requests the action for several objects, and returns those that have it. It lists the others in the dialog.
async function postAll(values, targets) {
  for (const one of targets) values.append("object", addressOf(one));
  const { refused } = JSON.parse(await post("switches", values));
  const left = new Map(refused.map(({ object, error }) => [object, error]));
  const done = targets.filter((one) => !left.has(addressOf(one)));
  if (left.size === 0) return done;
  const missed = targets.filter((one) => left.has(addressOf(one)));
  const text = missed.map((one) => `${one.title} in ${one.namespace}: ${left.get(addressOf(one))}`).join("; ");
  if (done.length === 0) throw new Error(text);
  flipProblem.textContent = text;
  flipProblem.hidden = false;
  asked.targets = missed;
  return done;
}

// --- Selection ---

function pickOf(row) {
  return row.querySelector(".pick");
}

// showSelection checks the selected rows, and drops those that are no longer shown.
function showSelection() {
  const shown = [...rows.children].filter(pickOf), keys = new Set(shown.map((row) => row.dataset.key));
  for (const key of selected) if (!keys.has(key)) selected.delete(key);
  for (const row of shown) pickOf(row).checked = selected.has(row.dataset.key);
  selectionBar.hidden = selected.size === 0;
  selectionBar.querySelector("span").textContent = `${selected.size} selected`;
  for (const verb of ["stop", "start"]) selectionBar.querySelector(`[data-select=${verb}]`).disabled = targetsFor(verb).length === 0;
}

// targetsFor returns the selected objects to which an action applies.
function targetsFor(verb) {
  return [...rows.children].filter((row) => selected.has(row.dataset.key))
    .map((row) => ({ ...row.querySelector(".act button")?.dataset, key: row.dataset.key })).filter((one) => one.verb === verb);
}

document.addEventListener("change", (event) => {
  if (!event.target.matches(".pick")) return;
  const { key } = event.target.closest("tr").dataset;
  if (!event.target.checked) selected.delete(key);
  else if (selected.size < maxSelected) selected.add(key);
  showSelection();
});

selectionBar.addEventListener("click", (event) => {
  const chosen = event.target.closest("button")?.dataset.select;
  if (chosen === "none") selected.clear();
  if (chosen === "all") for (const row of [...rows.children].filter(pickOf).slice(0, maxSelected)) selected.add(row.dataset.key);
  if (chosen === "stop" || chosen === "start") {
    const targets = targetsFor(chosen);
    if (targets.length > 0) ask(chosen, targets, targets[0].key);
    return;
  }
  if (chosen) showSelection();
});
