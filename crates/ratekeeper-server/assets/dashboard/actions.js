// What operators change. What is broad, or stops limits or traffic, is asked for twice.

import { byId, text } from "./dom.js";
import { call } from "./server.js";

/** Asks before something is done; Escape and Cancel are no. */
function isMeant(words) {
  const dialog = byId("confirm");
  text(byId("confirm-text"), words);
  return new Promise((resolve) => {
    let answer = false;
    byId("confirm-yes").onclick = () => {
      answer = true;
      dialog.close();
    };
    byId("confirm-no").onclick = () => dialog.close();
    dialog.onclose = () => resolve(answer);
    dialog.showModal();
    byId("confirm-no").focus();
  });
}

/** What is said in a form; what was left empty is not said. */
function said(form) {
  return Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value !== ""));
}

const scope = (rule) => (rule === "*" ? "every rule of every service" : rule.endsWith("/*") ? `every rule of ${rule.slice(0, -2)}` : `the rule ${rule}`);

const FORMS = {
  "mode-form": {
    path: "v1/modes/set",
    question: ({ rule, mode }) => {
      if (mode === "off") return `${scope(rule)} will not be looked at: nothing of it is limited or counted.`;
      return rule.endsWith("*") ? `The mode of ${scope(rule)} becomes ${mode}.` : null;
    },
    done: ({ rule, mode }) => `${rule} is ${mode} now; all servers of the store follow within a second.`,
  },
  "emergency-form": {
    path: "v1/emergencies/set",
    question: ({ rule, emergency, for: life }) =>
      emergency === "lift" ? `For ${life}, everything passes ${scope(rule)}: its limits hold for no one.` : `For ${life}, nothing passes ${scope(rule)}: every request it applies to is denied.`,
    done: ({ rule, emergency, for: life }) => `${rule}: ${emergency} for ${life}.`,
  },
  "override-form": {
    path: "v1/overrides/set",
    read: (body) => ({ ...body, limit: Number(body.limit) }),
    question: ({ limit, organisation, project }) => {
      if (limit === 0) return `A limit of 0 denies everything of ${project ?? organisation}.`;
      return project === undefined ? `This is for all projects of the organisation ${organisation}.` : null;
    },
    done: ({ endpoint, organisation, limit }) => `${organisation} has ${limit} under ${endpoint} now.`,
    clear: true,
  },
};

/** Listens to forms and buttons. `changed` is told when something was, `failed` of errors that are not for the form. */
export function listen(changed, failed) {
  for (const [id, { path, read = (body) => body, question, done, clear }] of Object.entries(FORMS)) {
    const form = byId(id);
    const result = form.querySelector(".result");
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const body = read(said(form));
      const words = question(body);
      if (words && !(await isMeant(words))) return;
      result.dataset.state = "";
      text(result, "Asking the server…");
      try {
        await call(path, body);
        text(result, done(body));
        result.dataset.state = "good";
        if (clear) form.reset();
        changed();
      } catch (error) {
        result.dataset.state = "bad";
        text(result, `Nothing was changed: ${error.message}`);
        failed(error);
      }
    });
  }
  byId("board").addEventListener("click", async ({ target }) => {
    const button = target.closest("button[data-call]");
    if (!button) return;
    const section = button.closest("section");
    button.disabled = true;
    try {
      await call(button.dataset.call, JSON.parse(button.dataset.body));
      // The row will go, and the focus with it.
      section.tabIndex = -1;
      section.focus();
      changed();
    } catch (error) {
      button.disabled = false;
      const result = section.querySelector(".result");
      result.dataset.state = "bad";
      text(result, `Nothing was changed: ${error.message}`);
      failed(error);
    }
  });
  byId("demo-button").addEventListener("click", async ({ currentTarget }) => {
    try {
      await call("v1/demo", { load: currentTarget.dataset.running === "true" ? "stop" : "start" });
      changed();
    } catch (error) {
      failed(error);
    }
  });
}
