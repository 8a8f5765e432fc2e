// Keeps the page as it is now. mitmweb tells its own page of each change of a flow, at /updates; here, what is marked
// `data-live` is then fetched anew. Without this script the page is one that has to be reloaded.
"use strict";

const REST = 1000; // ms between two fetches, however many flows change
const AGAIN = 3000; // ms until a lost connection is tried again
const live = () => document.querySelectorAll("[data-live]");
let socket = null;
let waiting = null;
let last = 0;

async function renew() {
  waiting = null;
  last = Date.now();
  if (!getSelection().isCollapsed) return later(); // somebody is marking text
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
    told(true);
    later(); // what happened before it listened
  };
  socket.onmessage = (event) => {
    const { type, payload } = JSON.parse(event.data);
    const one = document.querySelector("[data-flow]")?.dataset.flow;
    if (type.startsWith("flows/") && (!one || !payload?.flow || payload.flow.id === one)) later();
  };
  socket.onclose = () => {
    socket = null;
    told(document.hidden || !live().length);
    setTimeout(listen, AGAIN);
  };
}

function rest() {
  clearTimeout(waiting);
  waiting = null;
  socket?.close();
}

function told(connected) {
  const feed = document.getElementById("feed");
  if (feed) feed.hidden = connected;
}

// The cookie that came with the token is enough; the address may be shared, or stand in a picture.
const address = new URL(location.href);
if (address.searchParams.has("token")) {
  address.searchParams.delete("token");
  history.replaceState(null, "", address);
}

// A choice of model or client is shown at once; the keyboard stays where it is.
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
