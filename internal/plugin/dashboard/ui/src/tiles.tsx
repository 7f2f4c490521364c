import { Component } from 'preact';
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useSize } from './hooks';
import { groupTiles } from './grouping';
import type { By } from './grouping';
import { layOut, find, move, placeOf, seenTiles } from './layout';
import { plural, shortName, tileLabel } from './format';
import { Icon, TILE_ICONS } from './icons';
import type { Subset, Tile } from './types';

interface TileProps {
  tile: Tile;
  label: string;
  x: number;
  y: number;
  place: number;
  total: number;
  stop: boolean;
  chosen: boolean;
}

/** A tile is drawn anew only if what it shows is another. */
class TileView extends Component<TileProps> {
  override shouldComponentUpdate(next: TileProps) {
    for (const key in next) if (next[key as keyof TileProps] !== this.props[key as keyof TileProps]) return true;
    return false;
  }

  override render() {
    const { tile, label, x, y, place, total, stop, chosen } = this.props;
    return (
      <div
        role="option"
        class="tile"
        data-id={tile.id}
        data-state={tile.state}
        aria-label={tileLabel(tile)}
        aria-selected={chosen}
        aria-setsize={total}
        aria-posinset={place}
        tabIndex={stop ? 0 : -1}
        style={{ transform: `translate(${x}px, ${y}px)` }}
      >
        <Icon name={TILE_ICONS[tile.state] ?? 'ask'} more="mark" />
        {label && <span class="tname">{label}</span>}
      </div>
    );
  }
}

interface Props {
  tiles: Tile[];
  by: By;
  subsets: Subset[];
  named: boolean;
  workload: string;
  chosen: string;
  onChoose: (id: string) => void;
}

const MOVES = new Set(['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown', 'Home', 'End', 'PageUp', 'PageDown']);

export function TileGrid({ tiles, by, subsets, named, workload, chosen, onChoose }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const { width, height } = useSize(box);
  const [top, setTop] = useState(0);
  const [active, setActive] = useState('');
  const wanted = useRef(false);
  const hadFocus = useRef(false);

  const groups = useMemo(() => groupTiles(tiles, by, subsets), [tiles, by, subsets]);
  const byId = useMemo(() => new Map(tiles.map((t) => [t.id, t])), [tiles]);
  const layout = useMemo(() => {
    const sizes = { w: named ? 128 : 30, h: named ? 34 : 30, head: by === 'nothing' ? 0 : 30, gap: by === 'nothing' ? 0 : 12 };
    return layOut(
      groups.map((g) => ({ key: g.key, ids: g.tiles.map((t) => t.id) })),
      Math.max(0, width - 4),
      sizes,
      by === 'subset',
    );
  }, [groups, width, named, by]);

  const starts: number[] = [];
  layout.blocks.reduce((n, b, i) => ((starts[i] = n), n + b.ids.length), 0);
  const view = height || 400;
  // Some rows more than are seen, so that a short way of scrolling needs no new tiles.
  const step = 2 * layout.sizes.h;
  const seen = width ? seenTiles(layout, top - step, top + view + 2 * step) : [];
  // The tile that has the keyboard's focus stays in the document when it is scrolled out of sight.
  const at = active ? find(layout, active) : undefined;
  if (at && !seen.some((s) => s.block === layout.blocks[at.block])) {
    seen.push({ block: layout.blocks[at.block]!, from: at.index, to: at.index + 1 });
  }
  const stop = at ? active : seen.find((s) => s.from < s.to)?.block.ids[seen.find((s) => s.from < s.to)!.from];

  const show = (id: string) => {
    const spot = find(layout, id);
    const el = box.current;
    if (!spot || !el) return;
    const { y } = placeOf(layout, layout.blocks[spot.block]!, spot.index);
    const first = y - (spot.index < layout.blocks[spot.block]!.cols ? layout.sizes.head : 0);
    if (first < el.scrollTop) el.scrollTop = first;
    else if (y + layout.sizes.h > el.scrollTop + el.clientHeight) el.scrollTop = y + layout.sizes.h - el.clientHeight;
    setTop(el.scrollTop);
  };

  useLayoutEffect(() => {
    // A tile that went to another group is a new element: it takes the focus over.
    const lost = hadFocus.current && document.activeElement === document.body;
    if (!wanted.current && !lost) return;
    wanted.current = false;
    const el = box.current?.querySelector<HTMLElement>(`[data-id="${CSS.escape(stop ?? '')}"]`);
    el?.focus({ preventScroll: true });
  });

  const idOf = (e: Event) => (e.target as Element).closest<HTMLElement>('[data-id]')?.dataset.id;

  const onKeyDown = (e: KeyboardEvent) => {
    const id = idOf(e);
    if (!id || e.ctrlKey || e.altKey || e.metaKey) return;
    if (e.key === 'Enter' || e.key === ' ') {
      e.preventDefault();
      onChoose(id);
      return;
    }
    if (!MOVES.has(e.key)) return;
    e.preventDefault();
    const next = move(layout, id, e.key, Math.max(1, Math.floor(view / layout.sizes.h) - 1));
    if (!next) return;
    wanted.current = true;
    setActive(next);
    show(next);
  };

  return (
    <div
      class="tiles"
      ref={box}
      data-named={named}
      style={{ height: `clamp(80px, ${layout.height + 8}px, max(52vh, 260px))` }}
      onScroll={(e) => {
        const px = e.currentTarget.scrollTop;
        setTop(px - (px % step));
      }}
    >
      {!tiles.length && <p class="empty">No pod is to be shown.</p>}
      <div
        role={tiles.length ? 'listbox' : undefined}
        aria-label={tiles.length ? 'Pods' : undefined}
        class="canvas"
        style={{ height: `${layout.height}px` }}
        onKeyDown={onKeyDown}
        onClick={(e) => {
          const id = idOf(e);
          if (!id) return;
          setActive(id);
          onChoose(id);
        }}
        onMouseOver={(e) => {
          const el = (e.target as Element).closest<HTMLElement>('[data-id]');
          if (el) el.title = byId.get(el.dataset.id!)?.name ?? '';
        }}
        onFocusIn={(e) => {
          const id = idOf(e);
          hadFocus.current = true;
          if (id && id !== active) setActive(id);
        }}
        onFocusOut={(e) => {
          const el = e.target as Element;
          setTimeout(() => {
            if (el.isConnected && document.activeElement !== el) hadFocus.current = !!box.current?.contains(document.activeElement);
          });
        }}
      >
        {seen.map(({ block, from, to }) => {
          const i = layout.blocks.indexOf(block);
          const group = groups[i]!;
          const places = Array.from({ length: to - from }, (_, n) => from + n);
          if (at?.block === i && (at.index < from || at.index >= to)) places.push(at.index);
          const drawn = places.map((n) => {
            const id = block.ids[n]!;
            const tile = byId.get(id)!;
            const { x, y } = placeOf(layout, block, n);
            return (
              <TileView
                key={id}
                tile={tile}
                label={named ? shortName(tile.name, workload) : ''}
                x={x}
                y={y}
                place={starts[i]! + n + 1}
                total={tiles.length}
                stop={id === stop}
                chosen={id === chosen}
              />
            );
          });
          if (by === 'nothing') return drawn;
          const subset = by === 'subset' ? subsets.find((s) => s.name === group.key) : undefined;
          const count = subset?.wanted === undefined ? plural(group.tiles.length, 'pod') : `${group.tiles.length} of ${plural(subset.wanted, 'pod')}`;
          return (
            <div role={drawn.length ? 'group' : 'presentation'} key={group.key} aria-label={drawn.length ? `${group.title}, ${count}` : undefined}>
              <div
                class="ghead"
                aria-hidden="true"
                title={subset?.message}
                style={{ transform: `translate(${block.x}px, ${block.y}px)`, width: `${block.width}px` }}
              >
                <b>{group.title}</b> <span class="dim">{count}</span>
              </div>
              {drawn}
            </div>
          );
        })}
      </div>
    </div>
  );
}
