"use strict";
// The page works without this script and then shows the state at load time. The script updates it and enables the buttons.

const element = (id) => document.getElementById(id);
const rows = element("rows"), news = element("news"), table = element("table"), filter = element("filter");
let query = table.dataset.query, stream = null, retry = null, isFirst = false;

// --- Times ---

const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

function describeAge(seconds) {
  const size = Math.abs(seconds);
  const at = units.findIndex(([, length]) => size >= length * (length === 1 ? 0 : 2));
  const [name, length] = units[at];
  const text = `${Math.round(size / length)} ${name}`;
  return seconds >= 0 ? `${text} ago` : `in ${text}`;
}

function showAges(within) {
  for (const time of within.querySelectorAll("time")) {
    time.title ||= time.textContent;
    time.textContent = describeAge((Date.now() - Date.parse(time.dateTime)) / 1000);
  }
}

// --- Changes ---

function setConnection(state, text) {
  const shown = element("connection");
  if (shown.dataset.state !== state) {
    shown.dataset.state = state;
    shown.textContent = text;
  }
}

function parseRow(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  return holder.content.firstElementChild;
}

function describeChange(before, after) {
  const name = after.querySelector(".name").textContent;
  return `${name}: ${before.dataset.state} became ${after.dataset.state}`;
}

function showRows(wanted) {
  wanted = holdPlaces(wanted);
  const known = new Map([...rows.children].map((row) => [row.dataset.key, row]));
  const told = [];
  let place = rows.firstElementChild;
  for (const { key, sum, html } of wanted) {
    let row = known.get(key);
    known.delete(key);
    if (html && (!row || row.dataset.sum !== sum)) {
      const next = parseRow(html);
      showAges(next);
      if (row) {
        const focused = row.contains(document.activeElement);
        if (place === row) place = next;
        row.replaceWith(next);
        if (focused) next.querySelector(".act button")?.focus();
        if (row.dataset.state !== next.dataset.state) {
          next.classList.add("fresh");
          told.push(describeChange(row, next));
        }
      } else if (!isFirst) {
        next.classList.add("fresh");
      }
      row = next;
    }
    if (row !== place) rows.insertBefore(row, place);
    place = row.nextElementSibling;
  }
  for (const gone of known.values()) gone.remove();
  if (told.length > 0) news.textContent = told.length > 3 ? `${told.slice(0, 3).join("; ")}; and ${told.length - 3} others` : told.join("; ");
}

function showEvent(message) {
  const event = JSON.parse(message.data);
  for (const [name, html] of Object.entries(event.parts ?? {})) {
    const part = element(name);
    const focused = part.contains(document.activeElement) ? [...part.querySelectorAll("a")].indexOf(document.activeElement) : -1;
    part.innerHTML = html;
    if (focused >= 0) part.querySelectorAll("a")[focused]?.focus();
  }
  showRows(event.rows);
  refreshDrawer(event.rows);
  showSelection();
  isFirst = false;
  setConnection("live", "live");
}

function connect() {
  clearTimeout(retry);
  stream?.close();
  isFirst = true;
  stream = new EventSource(`events?${query}`);
  stream.onmessage = showEvent;
  stream.addEventListener("ended", () => location.reload()); // The token is no longer valid: the server shows the login form.
  stream.onerror = () => {
    setConnection("lost", "connection lost: the page may be outdated");
    if (stream.readyState === EventSource.CLOSED) retry = setTimeout(connect, 10000); // The server refused the stream.
  };
}

// --- Filter ---

function show(next) {
  held.clear();
  query = next.replace(/^\?/, "");
  history.replaceState(null, "", (query ? `?${query}` : location.pathname) + location.hash);
  connect();
}

function showFiltered() {
  const wanted = new URLSearchParams([...new FormData(filter)].filter(([, value]) => value !== ""));
  const sort = new URLSearchParams(query).get("sort");
  wanted.delete("sort");
  if (sort) wanted.set("sort", sort);
  show(wanted.toString());
}

let typing = null;
filter.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(showFiltered, 250);
});
filter.addEventListener("submit", (event) => {
  event.preventDefault();
  showFiltered();
});
filter.querySelector("button[type=submit]").hidden = true; // The filter applies while the user types.

document.addEventListener("click", (event) => {
  const link = event.target.closest("#summary a, #columns a, #pager a");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    const wanted = new URL(link.href).search;
    filter.elements.state.value = new URLSearchParams(wanted).get("state") ?? "";
    if (wanted === "") filter.reset();
    show(wanted);
  }
  const button = event.target.closest("button[data-verb]");
  if (button) ask(button.dataset.verb, [{ ...button.dataset }], button.closest("[data-key]").dataset.key);
});

showAges(document);
setInterval(() => showAges(document), 30000);
connect();
