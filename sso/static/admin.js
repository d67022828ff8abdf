// Adds a button to copy beside each identifier, secret and URL. Without it, a click selects the text.
"use strict";

{
  const texts = document.currentScript.dataset;
  for (const place of document.querySelectorAll("main [data-copy]")) {
    const code = place.previousElementSibling, button = document.createElement("button"), status = document.createElement("span");
    button.type = "button";
    button.className = "copy";
    button.textContent = texts.copy;
    button.setAttribute("aria-label", `${texts.copy}: ${place.dataset.copy}`);
    status.className = "unseen";
    status.setAttribute("role", "status");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
      } catch {
        getSelection().selectAllChildren(code); // for the keyboard
        return;
      }
      button.textContent = status.textContent = texts.copied;
      setTimeout(() => {
        button.textContent = texts.copy;
        status.textContent = "";
      }, 2000);
    });
    place.append(button, status);
  }
}
