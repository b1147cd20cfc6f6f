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
  for (const panel of document.querySelectorAll(".panel")) {
    const tell = (problem) => found.push({ panel: panel.dataset.title, problem });
    for (const element of panel.querySelectorAll("*")) {
      const text = element.children.length ? "" : element.textContent.trim();
      if (!text || element.closest("svg")) continue;
      const style = getComputedStyle(element);
      if ((style.overflow !== "visible" || style.textOverflow === "ellipsis") && element.scrollWidth > element.clientWidth + 1)
        tell(`cut: "${text.slice(0, 60)}" (${element.scrollWidth} > ${element.clientWidth} pixels)`);
      const [high, low] = [parse(style.color), background(element)].map(luminance).sort((a, b) => b - a);
      const contrast = (high + 0.05) / (low + 0.05);
      const least = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
      if (contrast < least) tell(`contrast ${contrast.toFixed(2)} of "${text.slice(0, 40)}" is below ${least}`);
    }
  }
  return found;
}
