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
