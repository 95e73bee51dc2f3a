"use strict";
// The drawer shows the details of one object. Its address is the fragment of the page's address.

const drawer = document.getElementById("drawer"), drawerContent = document.getElementById("drawer-content");
const drawerPrefix = "#details?";
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "";
let drawerLoad = 0, shownFragment = "";

function isDrawerOpen() {
  return drawer.open;
}

function focusInDrawer(verb) {
  (drawerContent.querySelector(`button[data-verb="${verb}"]`) ?? drawerContent.querySelector("h2"))?.focus();
}

async function loadDrawer(search) {
  const load = ++drawerLoad;
  let html = "";
  drawer.ariaBusy = "true";
  try {
    const query = new URLSearchParams(search);
    query.set("zone", zone);
    query.set("part-of-page", "true");
    const answer = await fetch(`details?${query}`, { signal: AbortSignal.timeout(60000) });
    if (answer.status === 401) location.reload();
    html = await answer.text();
    if (!answer.ok) throw new Error(html);
  } catch (error) {
    if (load !== drawerLoad) return;
    drawerContent.replaceChildren(document.getElementById("drawer-error").content.cloneNode(true));
    drawerContent.querySelector(".error").textContent = error.message;
    drawer.ariaBusy = "false";
    return;
  }
  if (load !== drawerLoad) return;
  const focused = drawerContent.contains(document.activeElement) ? document.activeElement : null;
  const verb = focused?.dataset.verb, isHeading = focused?.tagName === "H2", isClose = focused?.classList.contains("close");
  const top = drawer.scrollTop;
  drawerContent.innerHTML = html;
  showAges(drawerContent);
  drawer.scrollTop = top;
  drawer.ariaBusy = "false";
  if (isClose) drawerContent.querySelector(".close").focus();
  else if (verb || isHeading || document.activeElement === drawer || !drawer.contains(document.activeElement)) focusInDrawer(verb);
}

// followFragment opens or closes the drawer as the address says.
function followFragment() {
  if (!location.hash.startsWith(drawerPrefix)) {
    drawer.close();
    return;
  }
  shownFragment = location.hash;
  if (!drawer.open) {
    drawerContent.replaceChildren();
    drawer.scrollTop = 0;
    drawer.showModal();
  }
  loadDrawer(location.hash.slice(drawerPrefix.length));
}

function reloadDrawer() {
  if (drawer.open) loadDrawer(location.hash.slice(drawerPrefix.length));
}

// refreshDrawer loads the details again if the row of the object has changed.
function refreshDrawer(changed) {
  const key = drawerContent.querySelector(".details")?.dataset.key;
  if (drawer.open && key && changed.some((row) => row.key === key && row.html)) reloadDrawer();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("#rows a.name");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    location.hash = `${drawerPrefix}${new URL(link.href).search.slice(1)}`;
  }
  if (event.target.closest("#drawer .close") || event.target === drawer) drawer.close();
});

// The browser sends this event later than the drawer closes. The user may have opened other details or moved the focus since.
drawer.addEventListener("close", () => {
  if (drawer.open) return;
  drawerLoad++;
  const key = drawerContent.querySelector(".details")?.dataset.key;
  if (location.hash === shownFragment) history.pushState(null, "", location.pathname + location.search);
  if (toast.parentElement === drawer) document.body.append(toast);
  if (key && document.activeElement === document.body) document.querySelector(`#rows tr[data-key="${CSS.escape(key)}"] a.name`)?.focus();
});

addEventListener("hashchange", followFragment);
addEventListener("DOMContentLoaded", followFragment);
