// Asks the server each second, and says when it is away.

import { listen } from "./actions.js";
import { byId, tablesStayTables, text } from "./dom.js";
import { Refused, call, token } from "./server.js";
import { history, note, redraw, show } from "./view.js";

const EVERY_MS = 1_000;
const BACKOFF_MAX_MS = 8_000;

let failures = 0;
let timer = null;
let asking = false;
/** Whether what was before the page was opened is there. */
let knowsBefore = false;

function connection(state, words) {
  const pill = byId("connection");
  pill.dataset.state = state;
  text(pill, words);
}

function askAgain(after) {
  clearTimeout(timer);
  // What is not looked at needs no numbers.
  timer = document.hidden ? null : setTimeout(look, after);
}

async function look() {
  if (asking) return;
  asking = true;
  try {
    if (!knowsBefore) {
      for (const moment of (await call("v1/dashboard/history")).points) note(moment);
      knowsBefore = true;
    }
    const snapshot = await call("v1/dashboard");
    failures = 0;
    byId("sign-in").hidden = true;
    byId("board").hidden = false;
    byId("sign-out").hidden = token.get() === "";
    connection("live", "Live");
    show(snapshot);
    demo(snapshot.demo);
    askAgain(EVERY_MS);
  } catch (error) {
    if (error instanceof Refused && [401, 403, 429].includes(error.status)) {
      refused(error);
    } else {
      failures += 1;
      history.gap();
      connection("away", "Disconnected, trying again");
      askAgain(Math.min(EVERY_MS * 2 ** (failures - 1), BACKOFF_MAX_MS));
      if (!(error instanceof Refused) && error.name !== "Error") console.error(error);
    }
  } finally {
    asking = false;
  }
}

/** The server is there, and wants another token. */
function refused(error) {
  clearTimeout(timer);
  const had = token.get() !== "";
  token.forget();
  connection("off", "Not signed in");
  byId("board").hidden = true;
  byId("sign-out").hidden = true;
  byId("sign-in").hidden = false;
  // Without a token, it is no news that one is needed.
  const wait = error.retryAfter ? ` Try again in ${error.retryAfter} s.` : "";
  text(byId("token-error"), had || error.status !== 401 ? error.message + wait : "");
  byId("token").setAttribute("aria-invalid", had ? "true" : "false");
  byId("token").focus();
}

function demo(told) {
  byId("demo").hidden = told === null;
  if (told === null) return;
  const button = byId("demo-button");
  button.dataset.running = told.running;
  text(byId("demo-words"), told.running ? "The demo load is under way" : "Nothing to see yet?");
  text(button, told.running ? `Stop demo load (${told.seconds_left} s left)` : "Start demo load");
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token.set(byId("token").value.trim());
  byId("token").value = "";
  text(byId("token-error"), "");
  look();
});
byId("sign-out").addEventListener("click", () => {
  token.forget();
  location.reload();
});
byId("chart-of").addEventListener("change", redraw);
new ResizeObserver(redraw).observe(byId("chart"));
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) look();
});
listen(look, (error) => {
  if (error instanceof Refused && error.status === 401) refused(error);
});
tablesStayTables();
look();
