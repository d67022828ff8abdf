// Fills and sends the forms of passkeys (WebAuthn). Pages work without it.
"use strict";

const bytes = (text) =>
  Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));

const text = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

const listed = (descriptors) => (descriptors || []).map((one) => ({ ...one, id: bytes(one.id) }));

function optionsOf(form) {
  const options = JSON.parse(form.dataset.options);
  options.challenge = bytes(options.challenge);
  if (options.user) options.user.id = bytes(options.user.id);
  if (options.excludeCredentials) options.excludeCredentials = listed(options.excludeCredentials);
  if (options.allowCredentials) options.allowCredentials = listed(options.allowCredentials);
  return options;
}

function answerOf(credential) {
  const from = credential.response;
  const response = { clientDataJSON: text(from.clientDataJSON) };
  for (const name of ["attestationObject", "authenticatorData", "signature", "userHandle"]) {
    if (from[name]) response[name] = text(from[name]);
  }
  if (from.getTransports) response.transports = from.getTransports();
  return {
    id: credential.id,
    rawId: text(credential.rawId),
    type: credential.type,
    authenticatorAttachment: credential.authenticatorAttachment,
    clientExtensionResults: credential.getClientExtensionResults(),
    response,
  };
}

let offered = null; // the browser's offer in the email field, which another request replaces

async function run(form, mediation) {
  if (offered) offered.abort();
  offered = mediation ? new AbortController() : null;
  const request = { publicKey: optionsOf(form) };
  if (mediation) Object.assign(request, { mediation, signal: offered.signal });
  const create = form.dataset.passkey === "create";
  const credential = await navigator.credentials[create ? "create" : "get"](request);
  form.elements.credential.value = JSON.stringify(answerOf(credential));
  const remember = document.querySelector("input[type=checkbox][name=remember]");
  if (remember && remember.checked) form.elements.remember.value = "1";
  form.submit();
}

async function prepare(form) {
  form.hidden = false;
  const fault = form.querySelector(".fault");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    fault.hidden = true;
    run(form).catch(() => { fault.hidden = false; });
  });
  const can = PublicKeyCredential.isConditionalMediationAvailable;
  if (form.dataset.autofill && can && (await can.call(PublicKeyCredential))) {
    run(form, "conditional").catch(() => {}); // nobody chose one, or the button was pressed
  }
}

if (window.PublicKeyCredential) {
  for (const form of document.querySelectorAll("form[data-passkey]")) prepare(form);
}
