// Elements of the page, made and filled. It must not know which.

/** A new element at the end of another. */
export function element(tag, name, parent) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  parent.append(made);
  return made;
}

/** Set a text only when it changed: the page's layout stays quiet. */
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
