// What eyes overlook, as a list of {panel, problem}: text that is cut, and text that hardly differs from its background.
() => {
  const found = [];
  const parse = (color) => (/[\d.]+/.test(color) ? color.match(/[\d.]+/g).map(Number) : [0, 0, 0, 0]);
  const luminance = ([r, g, b]) => {
    const linear = [r, g, b].map((part) => ((part /= 255) <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const background = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  // a colour of a board is the same in both themes, whose backgrounds allow 4.17 at most
  const BOTH_THEMES = 4.1;
  const isGrey = (color) => Math.max(...parse(color).slice(0, 3)) - Math.min(...parse(color).slice(0, 3)) < 40;
  const clips = (style) => style.overflowX !== "visible";
  /** Whether text reaches out of an element around it that shows nothing outside of itself. */
  const cutByFrame = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    const inner = range.getBoundingClientRect();
    for (let at = node.parentElement; inner.width && !at.classList.contains("panel"); at = at.parentElement) {
      if (!clips(getComputedStyle(at))) continue;
      const outer = at.getBoundingClientRect();
      if (inner.left < outer.left - 1 || inner.right > outer.right + 1) return true;
    }
    return false;
  };
  for (const panel of document.querySelectorAll(".panel")) {
    const tell = (problem) => found.push({ panel: panel.dataset.title, problem });
    const texts = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT);
    for (let node = texts.nextNode(); node; node = texts.nextNode()) {
      const [text, element] = [node.textContent.trim(), node.parentElement];
      // what has one pixel is for screen readers
      if (!text || element.closest("svg, style") || element.clientWidth === 1) continue;
      const style = getComputedStyle(element);
      const shortened = style.textOverflow === "ellipsis" && element.scrollWidth > element.clientWidth + 1;
      if (shortened || cutByFrame(node)) tell(`cut: "${text.slice(0, 60)}"`);
      const [high, low] = [parse(style.color), background(element)].map(luminance).sort((a, b) => b - a);
      const contrast = (high + 0.05) / (low + 0.05);
      const least = parseFloat(style.fontSize) >= 24 ? 3 : isGrey(style.color) ? 4.5 : BOTH_THEMES;
      if (parseFloat(style.fontSize) < 9) tell(`text of ${style.fontSize}: "${text.slice(0, 40)}"`);
      if (contrast < least) tell(`contrast ${contrast.toFixed(2)} of "${text.slice(0, 40)}" is below ${least}`);
    }
  }
  return found;
}
