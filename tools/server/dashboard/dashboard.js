// The dashboard: signing in, and the views that the address names.

import { button, element, field, paragraph } from "./elements.js";
import { ask, follow, following, hasToken, leave, refusal, session, setToken, view, whenSignedOut, words } from "./server.js";
import { blocked } from "./denied.js";
import { policyDocument } from "./document.js";
import { keys, lists } from "./keys.js";
import { policies } from "./policies.js";
import { processes, store } from "./store.js";

const navigation = document.querySelector("nav");

const VIEWS = { policies, blocked, keys, lists, store, processes, document: policyDocument };

async function route() {
  const name = location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "policies";
  leave();
  for (const link of navigation.querySelectorAll("a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${name[0].toUpperCase()}${name.slice(1)} – polylimit`;
  await VIEWS[name]();
}

function signIn(why) {
  leave();
  navigation.hidden = true;
  const input = element("input", { type: "password", required: true, autocomplete: "off", size: 40 });
  const submit = (event) => {
    event.preventDefault();
    setToken(input.value.trim());
    start();
  };
  view.replaceChildren(
    element("h1", {}, "Sign in"),
    paragraph("This server needs a token. It stays in this tab until the tab is closed.", "quiet"),
    why ? element("p", { class: "refusal", role: "alert" }, why) : "",
    element("form", { onsubmit: submit }, field("token", input, "wide"), element("button", { class: "primary" }, "Sign in")),
  );
  input.focus();
}

async function start() {
  try {
    const { value } = await ask("v1/session");
    Object.assign(session, { role: value.role, configuration: value.configuration, shown: value.show_keys });
    document.getElementById("role").textContent = value.name ? `${value.name}, ${value.role}` : value.role;
  } catch (error) {
    if (error.status === 401) return signIn(hasToken() ? words(error) : "");
    if (error.status === 403) {
      return signIn("This token may ask for decisions, and no more. Give one with the role read or admin.");
    }
    return view.replaceChildren(refusal(error), button("Try again", start));
  }
  document.getElementById("leave").hidden = !hasToken();
  navigation.hidden = false;
  if (!following) follow();
  route();
}

addEventListener("hashchange", () => {
  if (!navigation.hidden) route().then(() => view.focus());
});

document.getElementById("leave").addEventListener("click", () => {
  sessionStorage.removeItem("token");
  location.reload();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  view.focus();
});
whenSignedOut(signIn);
start();
