// A number as a slider and as a field, both with a name and both for the keyboard. Python hears of it once a change.

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "bs-slider";
  root.dataset.lmSuppressShortcuts = "true"; // arrows and digits are ours
  root.innerHTML = `<span></span><input type="range"><input type="number">`;
  const [text, slider, field] = root.children;
  const draw = () => {
    text.textContent = model.get("description");
    slider.setAttribute("aria-label", model.get("description"));
    field.setAttribute("aria-label", `${model.get("description")}, as a number`);
    field.step = model.get("step"); // not the slider's: its grid would move a value that lies off it
    for (const input of [slider, field]) {
      for (const name of ["min", "max", "value"]) input[name] = model.get(name);
      input.disabled = model.get("disabled");
    }
  };
  const send = (input) => {
    const value = Math.round(Number(input.value));
    model.set("value", Math.max(model.get("min"), Math.min(model.get("max"), value)));
    model.save_changes();
    draw(); // what was typed may lie outside
  };
  // The slider's own arrow keys would move by one: as the field they move by a step.
  const step = (event) => {
    const sign = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }[event.key];
    if (!sign) return;
    event.preventDefault();
    slider.value = Number(slider.value) + sign * model.get("step");
    send(slider);
  };
  slider.addEventListener("keydown", step);
  slider.addEventListener("input", () => (field.value = slider.value));
  slider.addEventListener("change", () => send(slider));
  field.addEventListener("change", () => send(field));
  field.addEventListener("keydown", (event) => event.key === "Enter" && send(field)); // a notebook swallows its change
  const names = ["value", "min", "max", "step", "description", "disabled"];
  for (const name of names) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
  return () => names.forEach((name) => model.off(`change:${name}`, draw));
}

export default { render };
