/** Where tiles of one size stand: blocks below each other, or side by side as columns. */

export interface Block {
  key: string;
  ids: string[];
  x: number;
  y: number;
  cols: number;
  width: number;
}

export interface Sizes {
  /** A tile's width and height with its gap. */
  w: number;
  h: number;
  /** The height of a block's heading; 0 for none. */
  head: number;
  /** The space after a block. */
  gap: number;
}

export interface Layout {
  blocks: Block[];
  sizes: Sizes;
  width: number;
  height: number;
  columns: boolean;
}

const MIN_COLUMN = 150;

export function layOut(groups: { key: string; ids: string[] }[], width: number, sizes: Sizes, wantColumns = false): Layout {
  const columns = wantColumns && groups.length > 1 && (width - sizes.gap * (groups.length - 1)) / groups.length >= MIN_COLUMN;
  const each = columns ? Math.floor((width - sizes.gap * (groups.length - 1)) / groups.length) : width;
  const cols = Math.max(1, Math.floor(each / sizes.w));
  const blocks: Block[] = [];
  let height = 0;
  let y = 0;
  groups.forEach(({ key, ids }, i) => {
    const tall = sizes.head + Math.ceil(ids.length / cols) * sizes.h;
    blocks.push({ key, ids, x: columns ? i * (each + sizes.gap) : 0, y: columns ? 0 : y, cols, width: each });
    if (columns) height = Math.max(height, tall);
    else {
      y += tall + (i < groups.length - 1 ? sizes.gap : 0);
      height = y;
    }
  });
  return { blocks, sizes, width, height, columns };
}

export function placeOf(l: Layout, block: Block, i: number): { x: number; y: number } {
  return {
    x: block.x + (i % block.cols) * l.sizes.w,
    y: block.y + l.sizes.head + Math.floor(i / block.cols) * l.sizes.h,
  };
}

/** For each block that is seen between two heights, which of its tiles are. */
export function seenTiles(l: Layout, top: number, bottom: number): { block: Block; from: number; to: number }[] {
  const seen: { block: Block; from: number; to: number }[] = [];
  for (const block of l.blocks) {
    const rows = Math.ceil(block.ids.length / block.cols);
    const start = block.y + l.sizes.head;
    if (block.y > bottom || start + rows * l.sizes.h < top) continue;
    const from = Math.max(0, Math.floor((top - start) / l.sizes.h));
    const to = Math.min(rows, Math.ceil((bottom - start) / l.sizes.h));
    seen.push({ block, from: Math.min(from * block.cols, block.ids.length), to: Math.max(0, Math.min(to * block.cols, block.ids.length)) });
  }
  return seen;
}

export interface Spot {
  block: number;
  index: number;
}

export function find(l: Layout, id: string): Spot | undefined {
  for (let block = 0; block < l.blocks.length; block++) {
    const index = l.blocks[block]!.ids.indexOf(id);
    if (index >= 0) return { block, index };
  }
  return undefined;
}

function neighbour(l: Layout, from: number, step: 1 | -1): number | undefined {
  for (let i = from + step; i >= 0 && i < l.blocks.length; i += step) if (l.blocks[i]!.ids.length) return i;
  return undefined;
}

function vertical(l: Layout, { block, index }: Spot, rows: number): Spot {
  const b = l.blocks[block]!;
  const last = b.ids.length - 1;
  const next = index + rows * b.cols;
  if (next >= 0 && next <= last) return { block, index: next };
  const down = rows > 0;
  // The last row may be short: the way down ends on its last tile before it leaves the block.
  if (down && Math.floor(index / b.cols) < Math.floor(last / b.cols)) return { block, index: last };
  if (!down && Math.floor(index / b.cols) > 0) return { block, index: index % b.cols };
  const other = l.columns ? undefined : neighbour(l, block, down ? 1 : -1);
  if (other === undefined) return { block, index };
  const o = l.blocks[other]!;
  const col = index % b.cols;
  if (down) return { block: other, index: Math.min(col, o.ids.length - 1) };
  const lastRow = Math.floor((o.ids.length - 1) / o.cols) * o.cols;
  return { block: other, index: Math.min(lastRow + col, o.ids.length - 1) };
}

function sideways(l: Layout, { block, index }: Spot, step: 1 | -1): Spot {
  const b = l.blocks[block]!;
  const col = index % b.cols;
  const leaves = l.columns
    ? step > 0
      ? col === b.cols - 1 || index === b.ids.length - 1
      : col === 0
    : index + step < 0 || index + step >= b.ids.length;
  if (!leaves) return { block, index: index + step };
  const other = neighbour(l, block, step);
  if (other === undefined) return { block, index };
  const o = l.blocks[other]!;
  if (!l.columns) return { block: other, index: step > 0 ? 0 : o.ids.length - 1 };
  const row = Math.floor(index / b.cols);
  return { block: other, index: Math.min(row * o.cols + (step > 0 ? 0 : o.cols - 1), o.ids.length - 1) };
}

/** The tile that a key leads to, or nothing if the key does not move. */
export function move(l: Layout, from: string, key: string, page: number): string | undefined {
  const at = find(l, from);
  const full = l.blocks.filter((b) => b.ids.length);
  if (!full.length) return undefined;
  if (key === 'Home') return full[0]!.ids[0];
  if (key === 'End') return full[full.length - 1]!.ids.at(-1);
  if (!at) return full[0]!.ids[0];
  let to: Spot;
  if (key === 'ArrowRight') to = sideways(l, at, 1);
  else if (key === 'ArrowLeft') to = sideways(l, at, -1);
  else if (key === 'ArrowDown') to = vertical(l, at, 1);
  else if (key === 'ArrowUp') to = vertical(l, at, -1);
  else if (key === 'PageDown') to = vertical(l, at, page);
  else if (key === 'PageUp') to = vertical(l, at, -page);
  else return undefined;
  return l.blocks[to.block]!.ids[to.index];
}
