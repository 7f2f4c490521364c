import type { Row, RowState, Tile, TileState } from './types';

export const ROW_STATES: RowState[] = ['failed', 'waiting', 'rolling', 'paused', 'deleting', 'unknown', 'done'];
export const TILE_STATES: TileState[] = ['notReady', 'held', 'updating', 'deleting', 'old', 'new'];

export const ROW_WORDS: Record<RowState, string> = {
  failed: 'Failed',
  waiting: 'Waiting',
  rolling: 'Rolling',
  paused: 'Paused',
  deleting: 'Deleting',
  unknown: 'Unknown',
  done: 'Done',
};

export const TILE_WORDS: Record<TileState, string> = {
  old: 'Old revision',
  updating: 'Updating',
  notReady: 'Not ready',
  new: 'New revision',
  held: 'Held',
  deleting: 'Deleting',
};

export const TILE_HELP: Record<TileState, string> = {
  old: 'The pod has an older revision.',
  updating: 'The pod is being updated in place.',
  notReady: 'The pod does not serve.',
  new: 'The pod has the new revision and serves.',
  held: 'Something is left to do, and a rule holds it back.',
  deleting: 'The pod is being deleted.',
};

/** A length of time such as "35s", "2m 5s" or "3h 4m". */
export function length(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return s % 60 ? `${Math.floor(s / 60)}m ${s % 60}s` : `${s / 60}m`;
  const h = Math.floor(s / 3600);
  const m = Math.floor((s % 3600) / 60);
  if (h < 48) return m ? `${h}h ${m}m` : `${h}h`;
  return `${Math.floor(h / 24)}d`;
}

/** How long ago a time is, in one unit: "12s ago". */
export function ago(time: string | undefined, now: number): string {
  const at = Date.parse(time ?? '');
  if (Number.isNaN(at)) return 'unknown';
  const s = Math.max(0, Math.floor((now - at) / 1000));
  if (s < 60) return `${s}s ago`;
  if (s < 3600) return `${Math.floor(s / 60)}m ago`;
  if (s < 172800) return `${Math.floor(s / 3600)}h ago`;
  return `${Math.floor(s / 86400)}d ago`;
}

export function left(until: string | undefined, now: number): string | undefined {
  const at = Date.parse(until ?? '');
  if (Number.isNaN(at)) return undefined;
  return at <= now ? 'now due' : `in ${length(Math.ceil((at - now) / 1000))}`;
}

export function when(time: string | undefined): string {
  const at = Date.parse(time ?? '');
  return Number.isNaN(at) ? '' : new Date(at).toISOString().replace('T', ' ').replace(/\.\d+Z$/, ' UTC');
}

export const plural = (n: number, one: string, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

export function reasonText(reason?: string, message?: string): string {
  return [reason, message].filter(Boolean).join(': ');
}

/** What a screen reader says for a tile. */
export function tileLabel(t: Tile): string {
  const words = [t.name, t.new ? 'new' : 'old'];
  if (t.state !== 'new' && t.state !== 'old') words.push(TILE_WORDS[t.state].toLowerCase());
  const why = reasonText(t.reason, t.message);
  return words.join(', ') + (why ? `: ${why}` : '');
}

export function share(part: number | undefined, whole: number | undefined): number {
  if (part === undefined || whole === undefined) return 0;
  return whole <= 0 ? 1 : Math.min(1, Math.max(0, part / whole));
}

export function progressText(r: Row): string {
  if (r.updated === undefined) return '';
  const goal = r.target ?? r.desired;
  return goal === undefined ? `${r.updated} updated` : `${r.updated} of ${goal} updated`;
}

export function readyText(r: Row): string {
  if (r.ready === undefined) return '';
  return r.desired === undefined ? `${r.ready} ready` : `${r.ready} of ${r.desired} ready`;
}

/** What is said aloud when the state of a workload changes. */
export function announcement(r: Row): string {
  const parts = [`${r.kind} ${r.name}: ${ROW_WORDS[r.state].toLowerCase()}`, progressText(r), readyText(r)].filter(Boolean);
  return `${parts.join(', ')}.${r.waiting ? ` It waits for ${r.waiting}.` : ''}`;
}

/** The end of a pod's name, which is what tells it from its neighbours. */
export function shortName(name: string, workload: string): string {
  return name.startsWith(`${workload}-`) ? name.slice(workload.length + 1) : name;
}

/** The short form of an image: without registry and path, and with a digest cut to its first letters. */
export function shortImage(image: string): string {
  return image.slice(image.lastIndexOf('/') + 1).replace(/@sha256:(.{12}).*$/, '@$1');
}
