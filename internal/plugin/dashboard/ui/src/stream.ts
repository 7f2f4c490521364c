import { ApiError, request } from './api';

/** Cuts text that comes in pieces into lines of JSON. */
export class Lines {
  private rest = '';

  push(piece: string): unknown[] {
    const parts = (this.rest + piece).split('\n');
    this.rest = parts.pop() ?? '';
    const found: unknown[] = [];
    for (const part of parts) {
      if (!part.trim()) continue;
      try {
        found.push(JSON.parse(part));
      } catch {
        // A line that is no JSON is skipped; the next one may be whole.
      }
    }
    return found;
  }
}

/** Milliseconds to wait before try number n (from 0): 1 s, doubled up to 15 s. */
export function pause(n: number): number {
  return Math.min(1000 * 2 ** n, 15000);
}

export const ENDED = 'The connection ended.';

export type Connection =
  | { state: 'connecting' }
  | { state: 'connected' }
  | { state: 'lost'; until: number; why: string; status: number };

// The server says something every 15 s: a stream silent for three times as long is dead.
const SILENCE = 45000;

// A browser keeps six connections to one host, so tabs that nobody sees give theirs back after a while.
const UNSEEN = 60000;

/** Follows a stream until the returned function is called, and connects again when it ends. */
export function follow<M>(path: string, onMessage: (m: M) => void, onConnection: (c: Connection) => void): () => void {
  let runs = 0;
  let tries = 0;
  let began = false;
  let abort = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let silence: ReturnType<typeof setTimeout> | undefined;
  let unseen: ReturnType<typeof setTimeout> | undefined;
  let state: 'running' | 'pausing' | 'resting' = 'running';

  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => abort.abort(), SILENCE);
  };

  const run = async () => {
    const mine = ++runs;
    state = 'running';
    abort = new AbortController();
    if (tries === 0) onConnection({ state: 'connecting' });
    let why = ENDED;
    let status = 0;
    try {
      heard();
      const answer = await request(path, { signal: abort.signal });
      if (mine !== runs) return;
      const reader = answer.body!.getReader();
      const decoder = new TextDecoder();
      const lines = new Lines();
      onConnection({ state: 'connected' });
      // A connection made again sends all anew; what is no longer there goes when the new list is whole.
      if (began) onMessage({ type: 'reset' } as M);
      began = true;
      for (;;) {
        const { done, value } = await reader.read();
        if (done || mine !== runs) break;
        heard();
        tries = 0;
        for (const message of lines.push(decoder.decode(value, { stream: true }))) onMessage(message as M);
      }
    } catch (err) {
      if (err instanceof ApiError) {
        why = err.message;
        status = err.status;
      }
    }
    if (mine !== runs) return;
    clearTimeout(silence);
    if (status === 401) return;
    const wait = pause(tries++);
    state = 'pausing';
    onConnection({ state: 'lost', until: Date.now() + wait, why, status });
    timer = setTimeout(run, wait);
  };

  const halt = () => {
    runs++;
    clearTimeout(timer);
    clearTimeout(silence);
    abort.abort();
  };

  const onVisibility = () => {
    clearTimeout(unseen);
    if (document.hidden) {
      unseen = setTimeout(() => {
        state = 'resting';
        tries = 0;
        halt();
      }, UNSEEN);
    } else if (state !== 'running') {
      // Who comes back to the page does not wait for the next try.
      clearTimeout(timer);
      void run();
    }
  };

  document.addEventListener('visibilitychange', onVisibility);
  void run();
  return () => {
    document.removeEventListener('visibilitychange', onVisibility);
    clearTimeout(unseen);
    halt();
  };
}
