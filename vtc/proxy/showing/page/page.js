// Keeps the page up to date. mitmweb announces each change of a flow at /updates; this script then fetches the page and
// replaces the elements marked `data-live`. Without it the page has to be reloaded.
"use strict";

const REST = 1000; // minimum ms between two fetches, however many flows change
const RECONNECT = 3000; // ms until a lost connection is retried
const live = () => document.querySelectorAll("[data-live]");
let socket = null;
let waiting = null;
let last = 0;

async function renew() {
  waiting = null;
  last = Date.now();
  if (!getSelection().isCollapsed) return later(); // the user is selecting text
  const answer = await fetch(location.href).catch(() => null);
  if (!answer || !answer.ok) return;
  const now = new DOMParser().parseFromString(await answer.text(), "text/html");
  const focused = document.activeElement?.getAttribute("href");
  for (const old of live()) {
    const found = now.getElementById(old.id);
    if (found && !old.isEqualNode(found) && !old.contains(document.activeElement?.closest("select"))) {
      old.replaceWith(document.adoptNode(found));
    }
  }
  if (focused && document.activeElement === document.body) {
    document.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
  if (!live().length) rest();
}

function later() {
  waiting ??= setTimeout(renew, Math.max(100, last + REST - Date.now()));
}

function listen() {
  if (socket || document.hidden || !live().length) return;
  socket = new WebSocket(`${location.protocol.replace("http", "ws")}//${location.host}/updates`);
  socket.onopen = () => {
    showConnected(true);
    later(); // catch up with changes before the connection
  };
  socket.onmessage = (event) => {
    const { type, payload } = JSON.parse(event.data);
    const one = document.querySelector("[data-flow]")?.dataset.flow;
    if (type.startsWith("flows/") && (!one || !payload?.flow || payload.flow.id === one)) later();
  };
  socket.onclose = () => {
    socket = null;
    showConnected(document.hidden || !live().length);
    setTimeout(listen, RECONNECT);
  };
}

function rest() {
  clearTimeout(waiting);
  waiting = null;
  socket?.close();
}

function showConnected(connected) {
  const feed = document.getElementById("feed");
  if (feed) feed.hidden = connected;
}

// Remove the token from the address, which may be shared or appear in a screenshot; mitmweb has set a cookie for it.
const address = new URL(location.href);
if (address.searchParams.has("token")) {
  address.searchParams.delete("token");
  history.replaceState(null, "", address);
}

// Apply a filter by model or client at once, and keep the keyboard focus.
document.documentElement.classList.add("scripted");
document.addEventListener("change", (event) => {
  const form = event.target.closest("#choices");
  if (!form) return;
  const chosen = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  history.replaceState(null, "", chosen.size ? `/vtc?${chosen}` : "/vtc");
  renew();
});
document.addEventListener("visibilitychange", () => (document.hidden ? rest() : listen()));
listen();
