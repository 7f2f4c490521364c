import type { RowState, TileState } from './types';
import { ROW_WORDS } from './format';

const PATHS = {
  check: 'M3 8.5l3.3 3.3L13 5',
  turn: 'M13 8a5 5 0 1 1-1.6-3.7M13.2 1.8v3h-3',
  glass: 'M4 2h8M4 14h8M5 2v2.5L8 8l3-3.5V2M5 14v-2.5L8 8l3 3.5V14',
  pause: 'M5.5 3v10M10.5 3v10',
  cross: 'M4 4l8 8M12 4l-8 8',
  bin: 'M3 4.5h10M6 4.5V2.8h4v1.7M4.6 4.5l.6 9h5.6l.6-9',
  ask: 'M5.8 6a2.2 2.2 0 1 1 3.2 2c-.7.3-1 .7-1 1.5M8 12.4v.4',
  ring: 'M8 4.2a3.8 3.8 0 1 0 0 7.6a3.8 3.8 0 1 0 0-7.6',
  bang: 'M8 2.8v6.4M8 12.4v.6',
  lock: 'M4.2 7.5h7.6v5.6H4.2zM6 7.5V5.3a2 2 0 0 1 4 0v2.2',
  back: 'M6.5 3L2.5 7l4 4M3 7h6.5a3.5 3.5 0 0 1 0 7H7',
  play: 'M5 3.2v9.6L12.5 8z',
  scale: 'M2.5 13.5h11M4 11V8M8 11V3M12 11V6',
  sun: 'M8 5.2a2.8 2.8 0 1 0 0 5.6a2.8 2.8 0 1 0 0-5.6M8 1.5v1.2M8 13.3v1.2M1.5 8h1.2M13.3 8h1.2M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9',
  moon: 'M13 9.6A5.6 5.6 0 0 1 6.4 3a5.6 5.6 0 1 0 6.6 6.6z',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, more }: { name: IconName; more?: string }) {
  return (
    <svg class={more ? `icon ${more}` : 'icon'} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

const ROW_ICONS: Record<RowState, IconName> = {
  failed: 'cross',
  waiting: 'glass',
  rolling: 'turn',
  paused: 'pause',
  deleting: 'bin',
  unknown: 'ask',
  done: 'check',
};

export const TILE_ICONS: Record<TileState, IconName> = {
  old: 'ring',
  updating: 'turn',
  notReady: 'bang',
  new: 'check',
  held: 'lock',
  deleting: 'bin',
};

export function Chip({ state }: { state: RowState }) {
  return (
    <span class="chip" data-state={state}>
      <Icon name={ROW_ICONS[state] ?? 'ask'} />
      {ROW_WORDS[state] ?? state}
    </span>
  );
}
