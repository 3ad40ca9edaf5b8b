// Layout → canvas.

const FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
const FILLS = {
  queued: "prompt", queued_finished: "finished", bar: "bar", bar_padding: "bar_padding", bar_rest: "panel",
  suffix: "masked",
};

/** @param {CanvasRenderingContext2D} ctx @param {Layout} layout @param {Record<string, string>} colours */
export function paint(ctx, layout, colours, { dpr, selected, pointed }) {
  ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
  ctx.fillStyle = colours.surface;
  ctx.fillRect(0, 0, layout.width, layout.height);
  const pixel = 1 / dpr;
  const many = layout.rects.length > MANY;
  for (const rect of layout.rects) if (!(many && rect.cell)) paintRect(ctx, rect, colours, pixel);
  if (many) paintCells(ctx, layout.rects.filter((rect) => rect.cell), colours, dpr);
  ctx.globalAlpha = 1;
  for (const line of layout.lines) {
    stroke(ctx, colours.box, line.kind === "edge" ? 2 : 1.5, [5, 4]);
    ctx.beginPath();
    ctx.moveTo(line.x1, line.y1);
    ctx.lineTo(line.x2, line.y2);
    ctx.stroke();
  }
  for (const [id, width] of [[pointed, 1], [selected, 2]]) {
    const area = id && layout.areas.find((a) => a.id === id);
    if (!area) continue;
    stroke(ctx, colours.text, width, []);
    ctx.strokeRect(area.x - 2, area.y - 2, area.w + 4, area.h + 4);
  }
  paintLabels(ctx, layout.labels, colours);
}

const MANY = 4000; // rectangles from which cells are set pixel by pixel: a call for each would miss frames
let scratch = null;

/** Cells of the active blocks on a canvas of their own, one 32-bit word a pixel, then all at once. */
function paintCells(ctx, cells, colours, dpr) {
  const px = (v) => Math.round(v * dpr);
  const [x0] = range(cells, (r) => px(r.x)), [y0] = range(cells, (r) => px(r.y));
  const w = range(cells, (r) => px(r.x + r.w))[1] - x0, h = range(cells, (r) => px(r.y + r.h))[1] - y0;
  scratch ??= document.createElement("canvas").getContext("2d");
  if (scratch.canvas.width !== w || scratch.canvas.height !== h) Object.assign(scratch.canvas, { width: w, height: h });
  const image = scratch.createImageData(w, h), words = new Uint32Array(image.data.buffer);
  const ink = { active: word(colours.active), masked: word(colours.masked), line: word(colours.masked_line) };
  const fill = (colour, left, top, right, bottom) => {
    for (let y = top; y < bottom; y++) words.fill(colour, y * w + left, y * w + right);
  };
  for (const { kind, x, y, w: width, h: height, alpha = 1 } of cells) {
    if (alpha < 0.5) continue; // half way it turns over: blending each pixel would cost more than it shows
    const [left, top, right, bottom] = [px(x) - x0, px(y) - y0, px(x + width) - x0 - 1, px(y + height) - y0];
    fill(kind === "masked" ? ink.line : ink[kind], left, top, right, bottom);
    if (kind === "masked") fill(ink.masked, left + 1, top + 1, right - 1, bottom - 1);
  }
  scratch.putImageData(image, 0, 0);
  ctx.globalAlpha = 1;
  ctx.drawImage(scratch.canvas, x0 / dpr, y0 / dpr, w / dpr, h / dpr);
}

/** Least and greatest value. */
function range(cells, of) {
  let low = Infinity, high = -Infinity;
  for (const cell of cells) {
    const value = of(cell);
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** #rrggbb as the word of an opaque pixel (little-endian). */
function word(colour) {
  const [red, green, blue] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function stroke(ctx, colour, width, dashes) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.setLineDash(dashes);
}

function paintRect(ctx, rect, colours, pixel) {
  const { kind, x, y, w, h } = rect;
  if (w <= 0) return;
  ctx.globalAlpha = rect.alpha ?? 1;
  if (kind === "box" || kind === "enters") {
    stroke(ctx, colours.box, kind === "box" ? 2 : 1.5, kind === "box" ? [7, 4] : []);
    ctx.beginPath(); // the box's right side is the block boundary, a line of its own
    ctx.moveTo(x + w, y);
    ctx.lineTo(x, y);
    ctx.lineTo(x, y + h);
    ctx.lineTo(x + w, y + h);
    if (kind === "enters") ctx.closePath();
    ctx.stroke();
  } else if (kind === "frozen" || kind === "past") {
    hatch(ctx, rect, colours);
  } else {
    const seam = w > 4 * pixel ? pixel : 0; // a hairline between neighbours
    ctx.fillStyle = colours[FILLS[kind] ?? kind];
    ctx.fillRect(x, y, w - seam, h);
    if (kind === "masked" || kind === "suffix") outline(ctx, x, y, w - seam, h, colours.masked_line, pixel, []);
    if (kind === "next") outline(ctx, x, y, w - seam, h, colours.next_line, Math.max(1, pixel), [4, 3]);
    if (kind === "bar_rest") outline(ctx, x, y, w, h, colours.line, pixel, []);
    if (kind === "reclaimed") cross(ctx, rect, colours.reclaimed_line);
  }
}

function outline(ctx, x, y, w, h, colour, width, dashes) {
  if (w <= 2 * width || h <= 2 * width) return;
  stroke(ctx, colour, width, dashes);
  ctx.strokeRect(x + width / 2, y + width / 2, w - width, h - width);
}

function cross(ctx, { x, y, w, h }, colour) {
  const arm = Math.min(w, h) * 0.28;
  if (arm < 1.5) return;
  stroke(ctx, colour, Math.max(1, arm / 3), []);
  const cx = x + w / 2, cy = y + h / 2;
  ctx.beginPath();
  ctx.moveTo(cx - arm, cy - arm);
  ctx.lineTo(cx + arm, cy + arm);
  ctx.moveTo(cx - arm, cy + arm);
  ctx.lineTo(cx + arm, cy - arm);
  ctx.stroke();
}

/** Ended and waiting: veiled with the background, and diagonal lines over it. */
function hatch(ctx, { x, y, w, h }, colours) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, w, h);
  ctx.clip();
  ctx.globalAlpha = 0.5;
  ctx.fillStyle = colours.surface;
  ctx.fillRect(x, y, w, h);
  ctx.globalAlpha = 0.6;
  stroke(ctx, colours.hatch, 1.5, []);
  ctx.beginPath();
  for (let at = x - h; at < x + w; at += 8) {
    ctx.moveTo(at, y + h);
    ctx.lineTo(at + h, y);
  }
  ctx.stroke();
  ctx.restore();
}

function paintLabels(ctx, labels, colours) {
  ctx.textBaseline = "middle";
  for (const { text, x, y, align, colour, size, bold, alpha } of labels) {
    ctx.globalAlpha = alpha ?? 1;
    ctx.font = `${bold ? "600 " : ""}${size}px ${FONT}`;
    ctx.textAlign = align;
    ctx.fillStyle = colours[colour];
    ctx.fillText(text, x, y);
  }
  ctx.globalAlpha = 1;
}
