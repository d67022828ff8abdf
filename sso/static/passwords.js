// Lets people see the password that they type. Without it, the button stays hidden.
"use strict";

for (const button of document.querySelectorAll("button.show")) {
  const input = document.getElementById(button.getAttribute("aria-controls"));
  const show = (isShown) => {
    input.type = isShown ? "text" : "password";
    button.setAttribute("aria-pressed", String(isShown));
  };
  button.hidden = false;
  button.addEventListener("click", () => show(input.type === "password"));
  // Browsers keep what is typed into a text field, and take no password from one.
  input.form.addEventListener("submit", () => show(false));
  addEventListener("pageshow", () => show(false)); // the page may come from the history
}
