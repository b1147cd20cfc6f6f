// Creates and fills DOM elements.

/** Append a new element to another. */
export function element(tag, name, parent) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  parent.append(made);
  return made;
}

/** Set a text only if it changed, which avoids needless layout. */
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Set a canvas to the pixels of the screen. */
export function fitted(canvas) {
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [
    Math.max(1, Math.round(canvas.clientWidth * scale)),
    Math.max(1, Math.round(canvas.clientHeight * scale)),
  ];
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  return { canvas, context: canvas.getContext("2d"), scale };
}
