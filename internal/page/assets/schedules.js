"use strict";
// The tab of schedules works without this script. The script updates it, and fills in the time zone of the browser.

const refreshInterval = 10000;

// --- Form ---

const zone = document.querySelector("#create input[name=zone]");
zone.value ||= Intl.DateTimeFormat().resolvedOptions().timeZone ?? "";
for (const name of Intl.supportedValuesOf?.("timeZone") ?? []) document.getElementById("zones").append(new Option(name, name));

for (const form of document.forms) {
  form.addEventListener("submit", () => {
    for (const button of form.querySelectorAll("button[type=submit]")) setTimeout(() => { button.disabled = true; });
  });
}
addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("button:disabled")) button.disabled = false; // The user went back.
});
(document.querySelector("#preview") ?? document.querySelector(".error[role=alert]"))?.scrollIntoView({ block: "nearest" });

// --- Times ---

// showZone adds the time in the zone of the browser, which may differ from that of the schedule.
function showZone(within) {
  for (const time of within.querySelectorAll("time")) {
    time.title = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }) + " in your time zone";
  }
}

// --- Changes ---

function isInUse(article) {
  return article.contains(document.activeElement) || [...article.querySelectorAll("input:not([type=hidden])")].some((input) => input.value !== "");
}

function showSchedules(fresh) {
  const shown = document.getElementById("schedules");
  const known = new Map([...shown.children].map((article) => [article.dataset.key, article]));
  const next = [...fresh.getElementById("schedules").children].map((article) => {
    const old = known.get(article.dataset.key);
    if (old && (old.dataset.sum === article.dataset.sum || isInUse(old))) return old;
    if (old?.querySelector("details")?.open) article.querySelector("details").open = true;
    showZone(article);
    return document.adoptNode(article);
  });
  if (next.length !== shown.children.length || next.some((article, at) => article !== shown.children[at])) {
    if (![...known.values()].some(isInUse)) shown.replaceChildren(...next);
    else for (const article of next) known.get(article.dataset.key)?.replaceWith(article);
  }
  const pager = fresh.getElementById("pager");
  if (!document.getElementById("pager").contains(document.activeElement)) document.getElementById("pager").replaceWith(document.adoptNode(pager));
}

async function refresh() {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.pathname.endsWith("/schedules") ? location.href : "schedules", { signal: AbortSignal.timeout(refreshInterval) });
    if (answer.status === 401) location.assign("schedules"); // The token is no longer valid: the server shows the login form.
    else if (answer.ok) showSchedules(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch { /* The next refresh tries again. */ }
}

showZone(document);
setInterval(refresh, refreshInterval);
document.addEventListener("visibilitychange", refresh);
