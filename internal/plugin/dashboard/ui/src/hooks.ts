import { useEffect, useLayoutEffect, useMemo, useReducer, useState } from 'preact/hooks';
import type { RefObject } from 'preact';
import { follow } from './stream';
import type { Connection } from './stream';
import { Store } from './store';
import type { Schedule } from './store';

export function useRedraw(): () => void {
  const [, redraw] = useReducer<number, void>((n) => n + 1, 0);
  return redraw as () => void;
}

/** Follows the stream at the path and draws at most once in a frame, and in `every` milliseconds. */
export function useStream<S, M>(
  path: string,
  make: () => S,
  reduce: (s: S, m: M) => void,
  every = 0,
): { state: S; version: number; connection: Connection } {
  const [connection, setConnection] = useState<Connection>({ state: 'connecting' });
  const redraw = useRedraw();
  const store = useMemo(() => {
    const schedule: Schedule = (f) => (every ? setTimeout(() => requestAnimationFrame(f), every) : requestAnimationFrame(f));
    return new Store<S, M>(make(), reduce, schedule);
  }, [path]);
  useEffect(() => {
    const off = store.subscribe(redraw);
    const stop = follow<M>(path, store.push, setConnection);
    return () => {
      off();
      stop();
    };
  }, [store]);
  return { state: store.state, version: store.version, connection };
}

/** The present time, which moves each second while `on`. */
export function useNow(on = true): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (!on) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [on]);
  return now;
}

export interface Size {
  width: number;
  height: number;
}

export function useSize(ref: RefObject<HTMLElement>): Size {
  const [size, setSize] = useState<Size>({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const el = ref.current;
    if (!el) return;
    const measure = () =>
      setSize((old) => {
        const next = { width: el.clientWidth, height: el.clientHeight };
        return old.width === next.width && old.height === next.height ? old : next;
      });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(el);
    return () => observer.disconnect();
  }, []);
  return size;
}
