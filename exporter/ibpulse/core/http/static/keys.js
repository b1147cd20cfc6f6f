// Keyboard shortcuts, in one table shared with the help dialog. A page has those whose actions it has.

const LETTERS = [
  [["Space"], " ", "Hold the view, or go live again", "toggle"],
  [["←", "→"], "ArrowLeft ArrowRight", "Scroll by a tenth of the view; with Shift, by the whole view", "scroll"],
  [["+", "−"], "+ = - _", "Show less or more time", "zoom"],
  [["0"], "0", "One column per sample", "natural"],
  [["Home", "End"], "Home End", "Go to the oldest samples; go live", "edge"],
  [[",", "."], ", .", "Read the previous or next sample", "step"],
  [["↑", "↓"], "ArrowUp ArrowDown", "Move the reading to the row above or below", "row"],
  [["[", "]"], "[ ]", "Begin or end the selection at the sample that is read", "select"],
  [["a", "x"], "a", "Select the whole view; clear the selection", "selectAll"],
  [["z"], "z", "Show only the selection", "zoomIn"],
  [["d", "u"], "d u", "Change direction; change unit", "cycle"],
  [["l", "m"], "l m", "Change the line chart; show rates or differences between rails", "cycle"],
  [["w"], "w", "Change the statistics window", "cycle"],
  [["t", "c"], "t c", "Change theme; change colours", "cycle"],
  [["r"], "r", "Choose rails or nodes", "menu"],
  [["s"], "s", "Change the order of the rows", "order"],
  [["n"], "n", "Show nodes or rails", "split"],
  [["Enter"], "Enter", "Open the node whose row is read", "open"],
  [["p"], "p", "Save a picture", "picture"],
  [["f"], "f", "Full screen", "fill"],
  [["?"], "?", "Show this help", "help"],
];

/** Call `act[name](key, event)` for a key of the table. */
export function watchKeys(act) {
  const names = new Map(LETTERS.flatMap(([, keys, , name]) => keys.split(/(?<=\S) /).map((key) => [key, name])));
  names.set("Escape", "escape");
  names.set("x", "unselect");
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target;
    if (target.matches("input:not([type=checkbox]), select, textarea") || document.querySelector("dialog[open]"))
      return;
    // a focused button, link or checkbox keeps its own keys
    if ([" ", "Enter"].includes(event.key) && target.matches("button, summary, a, input")) return;
    const name = names.get(event.key.length === 1 ? event.key.toLowerCase() : event.key);
    if (!act[name]) return;
    if (name !== "escape") event.preventDefault();
    act[name](event.key.length === 1 ? event.key.toLowerCase() : event.key, event);
  });
  // after a click, the keyboard controls the picture again
  document.addEventListener("click", (event) => {
    if (event.detail > 0) event.target.closest("button")?.blur();
  });
}

/** List the shortcuts whose actions `act` has. */
export function listKeys(list, act) {
  for (const [shown, , words] of LETTERS.filter(([, , , name]) => act[name])) {
    const term = document.createElement("dt");
    for (const key of shown) {
      const cap = document.createElement("kbd");
      cap.textContent = key;
      term.append(cap, " ");
    }
    const meaning = document.createElement("dd");
    meaning.textContent = words;
    list.append(term, meaning);
  }
}
