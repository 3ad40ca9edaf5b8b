// Lines of code and a button that copies them. Where the page may not write to the clipboard they are selected instead.

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "bs-code";
  root.innerHTML = `<button type="button" data-testid="copy-code">Copy as code</button>
    <output aria-live="polite"></output><pre tabindex="0" data-testid="code" aria-label="Code of this run"></pre>`;
  const [button, said, code] = root.children;
  const draw = () => {
    code.textContent = model.get("code");
    said.textContent = "";
  };
  const copy = async () => {
    const selection = document.getSelection();
    selection.selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(model.get("code"));
      said.textContent = "Copied";
    } catch {
      said.textContent = document.execCommand("copy") ? "Copied" : "Selected: copy it with the keyboard";
    }
  };
  button.addEventListener("click", copy);
  model.on("change:code", draw);
  draw();
  el.append(root);
  return () => model.off("change:code", draw);
}

export default { render };
