// What is drawn in the picture instead of a colour: patterns of missing data and of a link that is down, and marks.

const MARK_INK = "#ffffff";
const MARK_EDGE = "#000000";
const made = new Map();

/** A bar at the upper edge of a row, white between black lines, so that it is seen on every colour; plain in a low row. */
export function drawMark(context, x, width, { y, height }, scale) {
  const thick = Math.min(Math.round(4 * scale), Math.floor(height / 2));
  const edge = thick > 2 * scale ? Math.max(1, Math.round(scale)) : 0;
  context.fillStyle = MARK_EDGE;
  context.fillRect(x, y, width, thick);
  context.fillStyle = MARK_INK;
  context.fillRect(x, y + edge, width, thick - 2 * edge);
}

/** The pattern of missing data: grey stripes, so that it resembles no value. */
export function hatching(context, scale) {
  return pattern(context, Math.round(8 * scale), "#3a4149", "#8d97a3", 1.6 * scale, ["/"]);
}

/** The pattern of a link that is down: a light lattice on dark red. */
export function lattice(context, scale) {
  return pattern(context, Math.round(8 * scale), "#5c0f14", "#ffc9c2", 1.2 * scale, ["/", "\\"]);
}

function pattern(context, side, ground, ink, width, strokes) {
  const key = `${side} ${ground}`;
  if (!made.has(key)) made.set(key, drawTile(side, ground, ink, width, strokes));
  return context.createPattern(made.get(key), "repeat");
}

function drawTile(side, ground, ink, width, strokes) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = side;
  const pen = tile.getContext("2d");
  pen.fillStyle = ground;
  pen.fillRect(0, 0, side, side);
  pen.strokeStyle = ink;
  pen.lineWidth = Math.max(1, width);
  pen.beginPath();
  for (const offset of [-side, 0, side]) {
    for (const stroke of strokes) {
      const [low, high] = stroke === "/" ? [side, 0] : [0, side];
      pen.moveTo(offset, low);
      pen.lineTo(offset + side, high);
    }
  }
  pen.stroke();
  return tile;
}
