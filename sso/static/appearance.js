// Shows the preview again whenever a field changes, and adds a color picker. Without it, a button does.
"use strict";

{
  const texts = document.currentScript.dataset, form = document.getElementById("appearance");
  const button = form.querySelector("[formtarget]"), color = form.elements.accent_color;
  let frame = document.querySelector("iframe[name=preview]"), timer = 0, count = 0;

  // Each preview gets a frame of its own, so that "Back" does not lead through them.
  const show = () => {
    const next = frame.cloneNode();
    next.removeAttribute("src");
    next.name = button.formTarget = `preview-${++count}`;
    next.className = "waiting";
    frame.parentNode.querySelectorAll(".waiting").forEach(other => other.remove());
    frame.after(next);
    next.addEventListener("load", () => {
      if (!next.isConnected || next.contentDocument?.URL === "about:blank") return;
      frame.remove();
      next.className = "";
      frame = next;
    });
    form.requestSubmit(button);
  };
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(show, 300);
  });

  if (color) {
    const picker = document.createElement("input");
    const match = () => { if (/^#[0-9a-f]{6}$/i.test(color.value)) picker.value = color.value; };
    picker.type = "color";
    picker.value = "#2f5bea";
    picker.setAttribute("aria-label", texts.color);
    match();
    color.addEventListener("input", match);
    picker.addEventListener("input", () => { color.value = picker.value; });
    const line = document.createElement("div");
    line.className = "picker";
    color.replaceWith(line);
    line.append(color, picker);
  }
}
