// The keyboard: one table, which the help shows too.

const LETTERS = [
  [["Space"], " ", "Hold the picture, or go live again", "toggle"],
  [["←", "→"], "ArrowLeft ArrowRight", "Scroll a tenth of the view; with Shift a whole view", "scroll"],
  [["+", "−"], "+ = - _", "Show less or more time", "zoom"],
  [["0"], "0", "One column for each sample", "natural"],
  [["Home", "End"], "Home End", "The oldest samples; live", "edge"],
  [[",", "."], ", .", "Read the sample before or after", "step"],
  [["↑", "↓"], "ArrowUp ArrowDown", "Read the rail above or below", "row"],
  [["d", "u"], "d u", "Direction; unit", "cycle"],
  [["w"], "w", "Window of the numbers", "cycle"],
  [["t", "c"], "t c", "Dark or light; colours", "cycle"],
  [["r"], "r", "Choose rails", "menu"],
  [["p"], "p", "Save a picture", "picture"],
  [["f"], "f", "Fill the screen", "fill"],
  [["?"], "?", "These keys", "help"],
];

/** Call `act[name](key, event)` for a key of the table. */
export function watchKeys(act) {
  const names = new Map(LETTERS.flatMap(([, keys, , name]) => keys.split(/(?<=\S) /).map((key) => [key, name])));
  names.set("Escape", "escape");
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target;
    if (target.matches("input:not([type=checkbox]), select, textarea") || document.querySelector("dialog[open]"))
      return;
    // a button, a link or a box that has the focus keeps the keys that work it
    if (event.key === " " && target.matches("button, summary, a, input")) return;
    const name = names.get(event.key.length === 1 ? event.key.toLowerCase() : event.key);
    if (!name) return;
    if (name !== "escape") event.preventDefault();
    act[name](event.key.length === 1 ? event.key.toLowerCase() : event.key, event);
  });
  // a click leaves the keyboard to the picture
  document.addEventListener("click", (event) => {
    if (event.detail > 0) event.target.closest("button")?.blur();
  });
}

export function listKeys(list) {
  for (const [shown, , words] of LETTERS) {
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
