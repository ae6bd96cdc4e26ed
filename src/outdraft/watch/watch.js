// Fetches the page again and again and puts in what has changed: focus, scrolling, open details and
// the choice of colours stay. Without a script the page loads itself anew.
"use strict";
const seconds = Number(document.currentScript.dataset.seconds);
const parts = ["what", "advice", "alarms", "time", "replicas", "notices"];
let lostAt = null;

function openDetails(root) {
  return [...root.querySelectorAll("details")].map((each) => each.open);
}

function replacePart(id, fresh) {
  const old = document.getElementById(id), made = fresh.getElementById(id);
  if (!old || !made) return;
  const opened = openDetails(old);
  const before = [...old.querySelectorAll("details")];
  before.forEach((each) => { each.open = false; });
  const isSame = old.outerHTML === made.outerHTML;
  before.forEach((each, at) => { each.open = opened[at]; });
  if (isSame) return;
  const focusable = "a, summary, [tabindex]";
  const at = [...old.querySelectorAll(focusable)].indexOf(document.activeElement);
  const scrolled = [...old.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  made.querySelectorAll("details").forEach((each, index) => { each.open = opened[index] ?? false; });
  old.replaceWith(document.adoptNode(made));
  made.querySelectorAll(".scroll").forEach((each, index) => { each.scrollLeft = scrolled[index] ?? 0; });
  if (at >= 0) made.querySelectorAll(focusable)[at]?.focus({ preventScroll: true });
}

async function refresh() {
  const lost = document.getElementById("lost");
  try {
    const answer = await fetch(location.pathname, { signal: AbortSignal.timeout(10000) });
    if (!answer.ok) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    parts.forEach((id) => replacePart(id, fresh));
    document.title = fresh.title;
    lostAt = null;
    if (lost.textContent) lost.textContent = "";
  } catch {
    if (lostAt === null) {
      lostAt = new Date();
      lost.textContent = `The watch does not answer since ${lostAt.toLocaleTimeString()}.`;
    }
  }
  setTimeout(refresh, 1000 * seconds);
}

setTimeout(refresh, 1000 * seconds);
