import { useEffect } from 'preact/hooks';
import { useRedraw } from './hooks';
import type { Target } from './types';

const followers = new Set<() => void>();
const tell = () => {
  for (const f of followers) f();
};
window.addEventListener('popstate', tell);

export function go(to: string, replace = false): void {
  if (replace) history.replaceState(null, '', to);
  else history.pushState(null, '', to);
  tell();
}

/** Changes values of the address's query; an empty value takes the key away. */
export function setQuery(values: Record<string, string>): void {
  const q = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(values)) {
    if (value) q.set(key, value);
    else q.delete(key);
  }
  const text = q.toString();
  go(location.pathname + (text ? `?${text}` : ''), true);
}

export function useRoute(): { path: string; query: URLSearchParams } {
  const redraw = useRedraw();
  useEffect(() => {
    followers.add(redraw);
    return () => void followers.delete(redraw);
  }, []);
  return { path: location.pathname, query: new URLSearchParams(location.search) };
}

let overview = '/';

/** Keeps the overview's address with its filters, for the way back from a workload. */
export function keepOverview(): void {
  overview = location.pathname + location.search;
}

export const overviewAddress = () => overview;

export function workloadAddress(t: Target): string {
  return `/workload/${[t.resource, t.namespace || '-', t.name].map(encodeURIComponent).join('/')}`;
}

export function targetOf(path: string): Target | undefined {
  const [first, resource, namespace, name, more] = path.split('/').slice(1);
  if (first !== 'workload' || !resource || !namespace || !name || more) return undefined;
  try {
    return {
      resource: decodeURIComponent(resource),
      // A dash stands for no namespace, as for kinds of the whole cluster.
      namespace: namespace === '-' ? '' : decodeURIComponent(namespace),
      name: decodeURIComponent(name),
    };
  } catch {
    return undefined;
  }
}

/** Follows plain clicks on links within the page without loading it again. */
export function followLink(e: MouseEvent): void {
  if (e.defaultPrevented || e.button || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
  const link = (e.target as Element).closest?.('a');
  const href = link?.getAttribute('href');
  if (!href?.startsWith('/') || link?.target) return;
  e.preventDefault();
  go(href);
}
