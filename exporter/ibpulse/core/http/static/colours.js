// Colour maps. Lightness increases evenly in both, so they work in greyscale and for colour-blind viewers.
// They are interpolated from 17 points of matplotlib's viridis and inferno (Smith, van der Walt, Firing; CC0).

const POINTS = {
  viridis:
    "440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26828e 21918c 1fa088 28ae80 3fbc73 5ec962 84d44b addc30 d8e219 fde725",
  inferno:
    "000004 0b0724 210c4a 3d0965 57106e 71196e 8a226a a32c61 bc3754 d24644 e45a31 f1731d f98e09 fcac11 f9cb35 f2ea69 fcffa4",
  // less than the others blue, as much dark, more orange: two hues that colour-blind viewers can tell apart
  difference:
    "b8dcff 94c8ff 6fb2fb 4e99ec 3a7dcd 2c61a4 22477a 2a3f58 2f353c 54422e 6f451e 98591b c06e18 e28518 f6a13a ffbe71 ffdcae",
};
export const MAPS = ["viridis", "inferno"];
export const SHADES = 256;

const made = new Map();

/** 256 colours as the 32-bit words of an ImageData (little-endian: alpha, blue, green, red). */
export function shades(name) {
  if (!made.has(name)) {
    const points = POINTS[name].split(" ").map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
    const words = new Uint32Array(SHADES);
    for (let index = 0; index < SHADES; index += 1) {
      const place = (index / (SHADES - 1)) * (points.length - 1);
      const left = Math.min(Math.floor(place), points.length - 2);
      const [red, green, blue] = points[left].map((from, at) =>
        Math.round(from + (points[left + 1][at] - from) * (place - left)),
      );
      words[index] = ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    }
    made.set(name, words);
  }
  return made.get(name);
}

/** A colour of the map for style sheets and canvases; `part` is 0 to 1. */
export function shade(name, part) {
  const word = shades(name)[Math.round(Math.min(1, Math.max(0, part)) * (SHADES - 1))];
  return `rgb(${word & 255} ${(word >> 8) & 255} ${(word >> 16) & 255})`;
}
